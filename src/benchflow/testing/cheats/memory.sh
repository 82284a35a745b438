# family: resources
# what: Processes that hold memory, so that the verifier is the one that is killed.
# user: any
for _ in 1 2 3 4 5; do later sh -c 'x=$(head -c 20000000 /dev/zero | tr "\0" x); sleep 60'; done
. "$scratch/pay.sh"
