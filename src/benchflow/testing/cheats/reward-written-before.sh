# family: reward files
# what: The reward is there before the verifier is.
# user: any
. "$scratch/pay.sh"
mkdir -p logs/verifier && cp /logs/verifier/* logs/verifier/
