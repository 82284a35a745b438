#!/bin/sh
# A session of its own and no open pipe: the server outlives this script and whoever started it.
set -eu
cp "$(dirname "$0")/server.py" /app/server.py
setsid nohup python3 /app/server.py > /app/server.log 2>&1 < /dev/null &

for _ in $(seq 100); do
    if python3 -c "import urllib.request as r; r.urlopen('http://127.0.0.1:8765/keys', timeout=5)" 2> /dev/null; then
        exit 0
    fi
    sleep 0.1
done
cat /app/server.log
exit 1
