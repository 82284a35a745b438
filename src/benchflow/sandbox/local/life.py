"""The life of a box's first process, seen from the host: from the request to start it until the kernel has ended it
and everything it held."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.errors import SandboxError
from benchflow.sandbox.local.guest import wire

if TYPE_CHECKING:
    from benchflow.sandbox.local.channel import Channel


class First:
    """The first process of a box, by a descriptor that no later process can be mistaken for. Owns it."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.pid = _pid_of(handle)
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(handle, self._on_end)

    def _on_end(self) -> None:
        self._loop.remove_reader(self.handle)
        self._ended.set()

    async def kill(self) -> None:
        """End it, and return when it and every process of its box is gone."""
        if self.handle < 0:
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)
        await self._ended.wait()
        os.close(self.handle)
        self.handle = -1


def _pid_of(handle: int) -> int:
    text = Path(f"/proc/self/fdinfo/{handle}").read_text(encoding="ascii")
    found = re.search(r"^Pid:\s*(-?\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else -1


class Life:
    """A first process that is starting, serving or gone."""

    def __init__(self, channel: Channel, box: str) -> None:
        self._channel = channel
        self._box = box
        self.first: First | None = None
        self.network = -1
        """Its network namespace, until it serves."""

    async def begin(self) -> None:
        """Return when it serves. Raises SandboxError with what went wrong inside."""
        while True:
            message, descriptors = await self._channel.receive()
            if message is None:
                raise SandboxError("it died while it was starting", backend="local", sandbox=self._box, phase="start")
            if "pid" in message:
                self.first = First(descriptors[0])
                self.network = descriptors[1]
                continue
            wire.close_all(descriptors)
            if "error" in message:
                raise SandboxError(message["error"], backend="local", sandbox=self._box, phase="start")
            return

    def drop_network(self) -> None:
        if self.network >= 0:
            os.close(self.network)
            self.network = -1

    async def end(self) -> None:
        """Return when nothing of it runs, however far it had come."""
        self.drop_network()
        if self.first is not None:
            await self.first.kill()
            return
        with suppress(OSError):
            self._channel.shut()
        while True:
            message, descriptors = await self._channel.receive()
            if message is None:
                break
            if "pid" in message:
                self.first = First(descriptors.pop(0))
                await self.first.kill()
            wire.close_all(descriptors)
