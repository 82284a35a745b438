# family: python start-up
# what: Bytecode that Python takes without looking at its source, for files that the verifier will put there.
# user: any
for name in test_outputs check conftest; do
  [ -e "$name.py" ] || cp "$scratch/pay.py" "$name.py"
  python3 -c "import py_compile as p; p.compile('$name.py', invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)"
done
