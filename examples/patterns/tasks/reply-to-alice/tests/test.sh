#!/bin/sh
mkdir -p /logs/verifier
reward=0
if python3 -I -B /tests/look.py; then
    reward=1
fi
echo "$reward" > /logs/verifier/reward.txt
