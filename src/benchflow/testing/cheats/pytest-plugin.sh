# family: pytest
# what: A package in the user's own site announces itself as a plugin of pytest.
# user: any
for place in "$site_user" "$site_system" /usr/lib/python3/dist-packages; do
  mkdir -p "$place/cheathook-1.0.dist-info"
  cp "$scratch/hook.py" "$place/cheathook.py"
  printf 'Metadata-Version: 2.1\nName: cheathook\nVersion: 1.0\n' > "$place/cheathook-1.0.dist-info/METADATA"
  printf '[pytest11]\ncheathook = cheathook\n' > "$place/cheathook-1.0.dist-info/entry_points.txt"
done
