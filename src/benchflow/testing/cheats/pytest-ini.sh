# family: pytest
# what: Configuration files of pytest load a plugin and select no test.
# user: any
cp "$scratch/hook.py" ./cheathook.py
for place in . / /tests /tmp; do
  printf '[pytest]\naddopts = -p cheathook --co -q\npython_files = nothing_*.py\npythonpath = %s\n' "$PWD" > "$place/pytest.ini"
  cp "$place/pytest.ini" "$place/tox.ini"
  printf '[tool:pytest]\naddopts = -p cheathook --co\n' > "$place/setup.cfg"
  printf '[tool.pytest.ini_options]\naddopts = "-p cheathook --co"\n' > "$place/pyproject.toml"
done
