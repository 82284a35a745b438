# family: reward files
# what: The file of the reward is a pipe that always says 1.
# user: any
mkdir -p /logs/verifier && rm -f /logs/verifier/reward.txt && mkfifo -m 666 /logs/verifier/reward.txt
later sh -c 'while :; do echo 1 > /logs/verifier/reward.txt; done'
