# family: python start-up
# what: Modules in the workspace have the names of those that a verifier imports.
# user: any
for name in json re pathlib subprocess pytest unittest hashlib csv math random tempfile shutil; do
  cp "$scratch/pay.py" "./$name.py"
done
