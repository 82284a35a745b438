# family: python start-up
# what: Bytecode that Python does not check against its source stands in for the workspace's modules.
# user: any
python3 - "$scratch/pay.py" <<'END'
import glob, importlib._bootstrap_external as b, importlib.util, os, sys
code = compile(open(sys.argv[1]).read(), "pay.py", "exec")
for source in glob.glob("**/*.py", recursive=True) + ["/tests/test_outputs.py", "/tests/check.py"]:
    cached = importlib.util.cache_from_source(os.path.abspath(source))
    os.makedirs(os.path.dirname(cached), exist_ok=True)
    with open(cached, "wb") as file:
        file.write(b._code_to_hash_pyc(code, b"\0" * 8, checked=False))
END
