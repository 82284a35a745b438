# family: pytest
# what: Bytecode under the name that pytest gives to rewritten tests waits where the tests will be.
# user: any
mkdir -p /tests/__pycache__
for python in 39 310 311 312 313 314; do
  for version in 7.2.1 8.3.5 8.4.1 8.4.2 9.0.0; do
    printf 'not bytecode' > "/tests/__pycache__/test_outputs.cpython-$python-pytest-$version.pyc"
  done
done
