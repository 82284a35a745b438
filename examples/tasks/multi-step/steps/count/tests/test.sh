#!/bin/sh
mkdir -p /logs/verifier

reward=0
if cmp /tests/expected.tsv /app/counts.tsv; then
    reward=1
    echo "counts.tsv is right"
fi
echo "$reward" > /logs/verifier/reward.txt
