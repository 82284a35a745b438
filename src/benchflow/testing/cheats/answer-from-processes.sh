# family: answers
# what: The environment and the memory of other processes are read.
# user: any
for p in /proc/[0-9]*; do
  tr '\0' '\n' < "$p/environ"; cat "$p/cmdline"; ls "$p/root/solution" "$p/cwd" "$p/fd"
done > "$scratch/seen"
