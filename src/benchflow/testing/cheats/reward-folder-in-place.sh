# family: reward files
# what: Where the reward belongs is a folder, so that it cannot be written.
# user: any
. "$scratch/pay.sh"; mkdir -p /logs/verifier/reward.txt.d
rm -f /logs/verifier/reward.txt; mkdir -p /logs/verifier/reward.txt; echo '{"reward": 1}' > /logs/verifier/reward.json
