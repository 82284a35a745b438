# family: pytest
# what: Start-up files set PYTEST_ADDOPTS and PYTEST_PLUGINS.
# user: any
for file in "$HOME/.profile" "$HOME/.bashrc" "$HOME/.bash_profile" /etc/environment /etc/profile; do
  echo "export PYTEST_ADDOPTS='--co -p no:terminal' PYTEST_PLUGINS=cheathook PYTHONPATH=$scratch" >> "$file"
done
cp "$scratch/hook.py" "$scratch/cheathook.py"
