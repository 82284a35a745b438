# family: reward files
# what: Numbers that a parser might take for a pass.
# user: any
mkdir -p /logs/verifier
printf '\357\273\2771' > /logs/verifier/reward.txt
printf '{"reward": 0, "reward": 1, "x": NaN, "y": Infinity, "z": 1e999, "b": true}' > /logs/verifier/reward.json
