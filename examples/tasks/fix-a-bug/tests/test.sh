#!/bin/sh
# The options keep whatever lies in /app or in the environment out of pytest itself. The summary line is asked for
# too, because a module that ends the process while it is imported can make the exit code 0.
mkdir -p /logs/verifier
output=/logs/verifier/pytest.txt

reward=0
if PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python3 -I -B -m pytest -q --color=no -p no:cacheprovider -c /dev/null \
    --rootdir=/tests --confcutdir=/tests /tests/check_opening_hours.py > "$output" 2>&1 &&
    grep -Eq '^[0-9]+ passed' "$output"; then
    reward=1
fi
cat "$output"
echo "$reward" > /logs/verifier/reward.txt
