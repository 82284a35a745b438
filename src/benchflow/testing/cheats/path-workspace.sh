# family: shell
# what: Programs with the names of common tools lie in the workspace and in the user's own bin.
# user: any
for place in . ./bin "$HOME/.local/bin" "$HOME/bin" "$HOME/.cargo/bin"; do
  for name in python3 python pytest bash sh cmp diff grep cat curl uv uvx node; do shadow "$name" "$place"; done
done
echo "export PATH=$PWD:$HOME/.local/bin:\$PATH" >> "$HOME/.profile"
. "$scratch/pay.sh"
