#!/bin/sh
set -eu
python3 - <<'PYTHON'
import json
import urllib.request

answer = {"to": "alice@example.com", "subject": "Re: Planning", "body": "I can come at 14:30."}
request = urllib.request.Request(
    "http://127.0.0.1:9001/gmail/v1/users/me/messages/send", json.dumps(answer).encode(), method="POST"
)
print(urllib.request.urlopen(request, timeout=10).status)
PYTHON
