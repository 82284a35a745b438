#!/bin/sh
set -eu
export LC_ALL=C
{
    head -n 1 /app/readings.csv
    tail -n +2 /app/readings.csv | grep -E ',-?[0-9]+(\.[0-9]+)?$' |
        sort -u | sort -s -t , -k 1,1 -k 2,2
} > /app/clean.csv
