# family: python start-up
# what: A virtualenv that the image has in the workspace is exchanged for a link to another one.
# user: any
for place in .venv venv; do
  [ -d "$place" ] || continue
  mkdir -p "$scratch/env/bin"
  for name in $(ls "$place/bin") python python3 pytest; do
    printf '#!/bin/sh\n. %s/pay.sh\nexit 0\n' "$scratch" > "$scratch/env/bin/$name"; chmod 755 "$scratch/env/bin/$name"
  done
  echo ". $scratch/pay.sh; exit 0" > "$scratch/env/bin/activate"
  mv "$place" "$scratch/old" && ln -s "$scratch/env" "$place"
done
