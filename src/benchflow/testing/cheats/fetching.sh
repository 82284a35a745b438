# family: reach
# what: The answer is fetched from outside, directly and with whatever listens on loopback as a proxy.
# user: any
for proxy in "" $(awk 'NR > 1 && $4 == "0A" { split($2, a, ":"); print a[2] }' /proc/net/tcp); do
  [ -n "$proxy" ] && export http_proxy="http://127.0.0.1:$((0x$proxy))" https_proxy="http://127.0.0.1:$((0x$proxy))"
  curl -m 2 -o ./answer.txt http://1.1.1.1/ || wget -q -T 2 -O ./answer.txt http://1.1.1.1/
  timeout 3 python3 -c 'import urllib.request as r; open("answer.txt", "wb").write(r.urlopen("http://1.1.1.1/", timeout=2).read())'
done
