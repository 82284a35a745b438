# family: time
# what: Jobs of cron, at and systemd for later.
# user: any
line="* * * * * sh $scratch/pay.sh"
echo "$line" | crontab -
mkdir -p /etc/cron.d "$HOME/.config/systemd/user/default.target.wants" /etc/systemd/system
echo "* * * * * root sh $scratch/pay.sh" > /etc/cron.d/cheat
echo "sh $scratch/pay.sh" | at now + 1 minute
printf '[Service]\nExecStart=/bin/sh %s/pay.sh\n[Install]\nWantedBy=default.target\n' "$scratch" > "$HOME/.config/systemd/user/cheat.service"
cp "$HOME/.config/systemd/user/cheat.service" /etc/systemd/system/cheat.service
