# family: resources
# what: Files that leave no room for the verifier's own.
# user: any
head -c 50000000 /dev/zero > ./ballast; n=0; while [ $n -lt 2000 ]; do : > "./f$n"; n=$((n + 1)); done
. "$scratch/pay.sh"
