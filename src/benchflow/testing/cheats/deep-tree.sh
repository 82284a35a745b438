# family: answers
# what: A tree so deep, and a pipe, on which a clean-up might hang.
# user: any
(n=0; while [ $n -lt 300 ]; do mkdir d && cd d || break; n=$((n + 1)); done)
mkfifo pipe1 conftest.py; mkdir -p __pycache__; mkfifo __pycache__/x.pyc
