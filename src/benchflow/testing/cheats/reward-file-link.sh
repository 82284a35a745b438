# family: reward files
# what: The file of the reward is a link to one of ours, hard and soft.
# user: any
echo 1 > "$scratch/one"; mkdir -p /logs/verifier
ln -f "$scratch/one" /logs/verifier/reward.txt || ln -sf "$scratch/one" /logs/verifier/reward.txt
ln -sf "$scratch/one" /logs/verifier/reward.json
