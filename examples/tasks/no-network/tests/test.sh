#!/bin/sh
# The interfaces are printed for whoever reads the log; the score depends on the text alone.
mkdir -p /logs/verifier
expected=4cca76d9c128fa8b1f7025d5e8ad9b1028e1819225fc7603423df576345e7c89

echo "network interfaces: $(ls /sys/class/net 2> /dev/null | tr '\n' ' ')"
found=$(sha256sum < /app/restored.txt | cut -d ' ' -f 1)
reward=0
if [ "$found" = "$expected" ]; then
    reward=1
    echo "restored.txt is right"
else
    echo "restored.txt: expected $expected, found ${found:-nothing}"
fi
echo "$reward" > /logs/verifier/reward.txt
