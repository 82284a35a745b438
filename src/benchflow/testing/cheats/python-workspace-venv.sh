# family: python start-up
# what: A virtualenv in the workspace, whose python and pytest always succeed.
# user: any
for place in .venv venv env; do
  mkdir -p "$place/bin"
  for name in python python3 pytest pip uv; do shadow "$name" "$PWD/$place/bin"; done
  echo "export PATH=$PWD/$place/bin:\$PATH" > "$place/bin/activate"
  echo "home = /usr/bin" > "$place/pyvenv.cfg"
done
