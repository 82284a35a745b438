"""A key-value store over HTTP; its state is a dictionary in this process."""

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

store = {"motd": Path("/app/motd.txt").read_bytes()}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def key(self):
        match = re.fullmatch(r"/keys/([A-Za-z0-9-]+)", self.path)
        return match[1] if match else None

    def answer(self, status, body=b"", kind="application/octet-stream"):
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/keys":
            self.answer(200, json.dumps(sorted(store)).encode(), "application/json")
        elif (value := store.get(self.key())) is not None:
            self.answer(200, value)
        else:
            self.answer(404)

    def do_PUT(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if key := self.key():
            store[key] = body
        self.answer(204 if key else 404)

    def do_DELETE(self):
        self.answer(404 if store.pop(self.key(), None) is None else 204)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(404)


ThreadingHTTPServer(("127.0.0.1", 8765), Handler).serve_forever()
