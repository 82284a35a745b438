"""A process behind the fence reaches the hosts it was told of, and no others."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import asyncio, socket, sys, threading
from benchflow.gateway.litellm_bridge.fence import Fence

def serve(host):
    server = socket.create_server((host, 0))
    threading.Thread(target=lambda: [server.accept() for _ in range(9)], daemon=True).start()
    return server.getsockname()[1]

ports = {host: serve(host) for host in ("127.0.0.1", "127.0.0.2")}
fence = Fence()
fence.allow("http://127.0.0.1:1/v1")
fence.raise_()

def plain(host):
    socket.create_connection((host, ports[host])).close()

async def streams(host):
    _, writer = await asyncio.open_connection(host, ports[host])
    writer.close()

def attempt(what, host):
    try:
        done = what(host)
        if asyncio.iscoroutine(done):
            asyncio.run(done)
        return "yes"
    except OSError as error:
        return "no" if isinstance(error, PermissionError) else repr(error)

for host in ports:
    print(attempt(plain, host), attempt(streams, host))
try:
    socket.getaddrinfo("elsewhere.example", 80)
except PermissionError:
    print("no")
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    udp.sendto(b"x", ("127.0.0.2", 53))
except PermissionError:
    print("no")
"""


def test_only_allowed_hosts_are_reached() -> None:
    ended = subprocess.run(
        [sys.executable, "-I", "-c", CODE], capture_output=True, text=True, timeout=60, env={}, check=True
    )
    assert ended.stdout.split() == ["yes", "yes", "no", "no", "no", "no"]
