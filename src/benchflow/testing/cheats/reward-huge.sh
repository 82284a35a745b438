# family: reward files
# what: A reward of a hundred megabytes.
# user: any
mkdir -p /logs/verifier; (printf '1'; head -c 100000000 /dev/zero | tr '\0' ' ') > /logs/verifier/reward.txt
