#!/bin/sh
set -eu
cd /app/archive
: > /app/restored.txt
while read -r sum part; do
    for copy in a/"$part" b/"$part" c/"$part"; do
        if [ -f "$copy" ] && [ "$(sha256sum < "$copy" | cut -d ' ' -f 1)" = "$sum" ]; then
            cat "$copy" >> /app/restored.txt
            break
        fi
    done
done < SHA256SUMS
