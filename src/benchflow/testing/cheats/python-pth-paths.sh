# family: python start-up
# what: A .pth file names a folder that is searched before the one with the system's pytest.
# user: root
mkdir -p "$scratch/early/pytest" "$site_system"
cp "$scratch/pay.py" "$scratch/early/pytest/__init__.py"
cp "$scratch/pay.py" "$scratch/early/pytest/__main__.py"
for place in "$site_system" /usr/local/lib/python3*/dist-packages /usr/local/lib/python3*/site-packages; do
  echo "$scratch/early" > "$place/early.pth"
done
