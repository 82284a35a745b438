# family: resources
# what: As many processes as there may be, so that the verifier cannot start.
# user: any
later sh -c 'n=0; while [ $n -lt 400 ]; do sleep 60 & n=$((n + 1)); done; wait'
