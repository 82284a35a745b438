# family: time
# what: A process waits until the tests appear, then changes them and reads what they want.
# user: any
later sh -c 'while [ ! -e /tests/test.sh ]; do sleep 0.01; done
printf "#!/bin/sh\nmkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt\n" > /tests/test.sh; cp -r /tests /tmp/seen'
