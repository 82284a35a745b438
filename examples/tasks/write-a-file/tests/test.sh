#!/bin/sh
# Compares byte for byte: a missing or a second newline at the end counts as a difference.
mkdir -p /logs/verifier

reward=0
if printf 'Hello from the sandbox!\n' | cmp - /app/greeting.txt; then
    reward=1
    echo "greeting.txt is right"
fi
echo "$reward" > /logs/verifier/reward.txt
