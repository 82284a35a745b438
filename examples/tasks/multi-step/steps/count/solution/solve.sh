#!/bin/sh
set -eu
awk '{ count[$(NF - 1)]++ } END { for (code in count) print code "\t" count[code] }' /app/access-1.log |
    sort -n > /app/counts.tsv
