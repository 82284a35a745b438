"""Talks to the server as it was left running; the first wrong answer ends it with an AssertionError."""

import http.client
import json
import threading
import uuid
from pathlib import Path


def ask(method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", 8765, timeout=10)
    try:
        connection.request(method, path, body=body)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def keys():
    status, body, headers = ask("GET", "/keys")
    assert status == 200, status
    assert headers.get_content_type() == "application/json", headers
    return json.loads(body)


def check(method, path, expected, body=None, content=None):
    status, got, _ = ask(method, path, body)
    assert status == expected, f"{method} {path}: expected {expected}, got {status}"
    assert content is None or got == content, f"{method} {path}: expected {content!r}, got {got!r}"


def fill(prefix):
    for index in range(25):
        check("PUT", f"/keys/{prefix}-{index}", 204, body=f"{prefix} {index}".encode())


fresh = f"k-{uuid.uuid4()}"
check("GET", "/keys/motd", 200, content=Path("/app/motd.txt").read_bytes())
check("GET", f"/keys/{fresh}", 404)
check("DELETE", f"/keys/{fresh}", 404)
check("PUT", f"/keys/{fresh}", 204, body=bytes(range(256)))
check("GET", f"/keys/{fresh}", 200, content=bytes(range(256)))
check("PUT", f"/keys/{fresh}", 204, body=b"")
check("GET", f"/keys/{fresh}", 200, content=b"")
assert fresh in keys()
check("DELETE", f"/keys/{fresh}", 204)
check("GET", f"/keys/{fresh}", 404)
assert fresh not in keys()
check("GET", "/", 404)
check("GET", "/keys/a/b", 404)
check("PUT", "/other", 404, body=b"x")

before = set(keys())
prefixes = [uuid.uuid4().hex for _ in range(8)]
threads = [threading.Thread(target=fill, args=(prefix,)) for prefix in prefixes]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
after = keys()
assert after == sorted(after), "the keys are not sorted"
assert set(after) == before | {f"{prefix}-{index}" for prefix in prefixes for index in range(25)}
check("GET", f"/keys/{prefixes[3]}-7", 200, content=f"{prefixes[3]} 7".encode())
print("every answer was right")
