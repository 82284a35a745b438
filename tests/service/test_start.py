"""Services started inside a real sandbox; a small program stands in for the image's own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import ConfigError, SandboxError
from benchflow.sandbox.base import FileData
from benchflow.service.registry import REVIEWER, SERVICES
from benchflow.service.start import build_service_hooks

if TYPE_CHECKING:
    from benchflow.sandbox.base import Sandbox

pytestmark = pytest.mark.needs("local")

CLAW = b"""#!/usr/bin/python3
import http.server, sys
database, port = sys.argv[2], int(sys.argv[sys.argv.index("--port") + 1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status":"ok"}' if self.path == "/health" else open(database, "rb").read())
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


async def test_a_service_is_ready_when_its_hook_returns(box: Sandbox) -> None:
    await box.put({"claw-gmail": FileData(CLAW, 0o755)}, "/usr/local/bin")
    await box.put({"gmail.db": FileData(b"mail", 0o644)}, "/data")
    for hook in build_service_hooks([SERVICES["gmail"]]):
        await hook(box)
    look = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9001/state').read().decode())"
    assert (await box.exec(["python3", "-c", look], user="nobody")).text == "mail\n"
    refused = await box.exec(["cat", "/data/gmail.db"], user="nobody")
    assert not refused.ok


async def test_a_service_that_is_not_in_the_image_is_named(box: Sandbox) -> None:
    (hook,) = build_service_hooks(["slack"])
    with pytest.raises(SandboxError, match="slack did not start: its command claw-slack is not in"):
        await hook(box)


async def test_a_service_that_ends_at_once_says_why(box: Sandbox) -> None:
    broken = FileData(b"#!/bin/sh\necho no such table >&2\nexit 1\n", 0o755)
    await box.put({"claw-gmail": broken}, "/usr/local/bin")
    (hook,) = build_service_hooks([replace(SERVICES["gmail"], port=9101)])
    with pytest.raises(SandboxError, match="it ended at once: no such table"):
        await hook(box)


def test_the_reviewer_is_no_program_of_the_image() -> None:
    with pytest.raises(ConfigError, match="under `services`"):
        build_service_hooks([REVIEWER])
