"""Looks at the mailbox as the service left it, and through the service itself."""

import json
import sqlite3
import urllib.request

with sqlite3.connect("/data/gmail.db") as connection:
    sent = connection.execute("SELECT recipient, subject, body FROM messages WHERE sender = 'me'").fetchall()
assert len(sent) == 1, sent
recipient, subject, body = sent[0]
assert (recipient, subject) == ("alice@example.com", "Re: Planning"), sent
assert [time for time in ("09:00", "11:15", "14:30") if time in body] == ["14:30"], body

with urllib.request.urlopen("http://127.0.0.1:9001/gmail/v1/users/me/messages", timeout=10) as answer:
    assert len(json.load(answer)["messages"]) == 4
print("the answer is right")
