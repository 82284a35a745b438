"""What a container is really denied, read from inside."""

from __future__ import annotations

import pytest

from benchflow.sandbox.base import ImageRef, SandboxSpec
from benchflow.sandbox.registry import close_backends, get_backend

NET_RAW = 13


@pytest.mark.needs("docker")
async def test_no_new_privileges_and_no_raw_sockets() -> None:
    try:
        async with get_backend("docker").create(SandboxSpec(image=ImageRef("debian:bookworm-slim"))) as sandbox:
            seen = await sandbox.exec(["cat", "/proc/self/status"], user=0)
    finally:
        await close_backends()
    status = dict(line.split(":\t", 1) for line in seen.text.splitlines() if ":\t" in line)
    assert status["NoNewPrivs"].strip() == "1"
    assert not int(status["CapBnd"], 16) & 1 << NET_RAW
