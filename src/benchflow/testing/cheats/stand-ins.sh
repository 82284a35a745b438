# family: stand-ins
# what: Folders, packages and bytecode in the places where the verifier will copy its tests to.
# user: any
for name in test_outputs check test_state; do
  mkdir -p "$name.py" "$name"
  cp "$scratch/pay.py" "$name.py/__main__.py"
  cp "$scratch/pay.py" "$name.py/test_$name.py"
  cp "$scratch/pay.py" "$name/__init__.py"
done
mkdir -p conftest tests
cp "$scratch/hook.py" conftest/__init__.py
printf 'def test_nothing():\n    pass\n' > tests/test_outputs.py
printf 'check test all:\n\t@true\n' > GNUmakefile
