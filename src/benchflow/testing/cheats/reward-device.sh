# family: reward files
# what: Where the reward belongs is a device.
# user: root
mkdir -p /logs/verifier; rm -f /logs/verifier/reward.*; mknod /logs/verifier/reward.txt c 1 5; ln -s /dev/stdin /logs/verifier/reward.json
