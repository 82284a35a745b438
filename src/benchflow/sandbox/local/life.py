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

from benchflow.errors import SandboxError, SandboxGone
from benchflow.sandbox.local.guest import wire

if TYPE_CHECKING:
    from benchflow.sandbox.local.channel import Channel
    from benchflow.sandbox.local.uppers import Exchange


class Busy(Exception):
    """Others than its first process run in a box that was to get a fresh layer, so it did not."""


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
        if self.handle >= 0:  # not closed meanwhile by another who waited for the same
            os.close(self.handle)
            self.handle = -1


def _pid_of(handle: int) -> int:
    text = Path(f"/proc/self/fdinfo/{handle}").read_text(encoding="ascii")
    found = re.search(r"^Pid:\s*(-?\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else -1


class Life:
    """A first process that is starting, serving or gone. As a fork it begins with an `exchange` in its original."""

    def __init__(self, channel: Channel, box: str, exchange: Exchange | None = None) -> None:
        self._channel = channel
        self._box = box
        self._exchange = exchange
        self.first: First | None = None
        self._network: list[int] = []

    async def begin(self) -> None:
        """Return when it serves. Raises SandboxError with what went wrong inside, and Busy."""
        while True:
            message, descriptors = await self._channel.receive()
            if message is None:
                raise SandboxError("it died while it was starting", backend="local", sandbox=self._box, phase="start")
            if self._note(message, descriptors):
                continue
            if "error" in message:
                raise SandboxError(message["error"], backend="local", sandbox=self._box, phase="start")
            return

    def _note(self, message: wire.Message, descriptors: list[int]) -> bool:
        """Take in what a message says of the start, unless it is the last one. Raises Busy."""
        if "pid" in message:
            self.first = First(descriptors[0])
            self._network = descriptors[1:]
            return True
        wire.close_all(descriptors)
        if self._exchange and self._exchange.done is None:
            self._exchange.settle(done=message.get("busy") is False)
        if message.get("busy"):
            raise Busy
        return "busy" in message

    def handle(self) -> int:
        """A descriptor of it that belongs to the caller: its own one goes with it. Raises SandboxGone."""
        if self.first is None or self.first.handle < 0:
            raise SandboxGone("the sandbox ended", backend="local", sandbox=self._box, phase="fork")
        return os.dup(self.first.handle)

    def take_network(self) -> list[int]:
        """The descriptors of a network namespace that was made for it, which belong to the caller then."""
        taken, self._network = self._network, []
        return taken

    async def end(self) -> None:
        """Return when nothing of it runs, however far it had come."""
        if self.first is None:
            with suppress(OSError):
                self._channel.shut()
        while self.first is None:
            message, descriptors = await self._channel.receive()
            if message is None:
                break
            with suppress(Busy):
                self._note(message, descriptors)
        if self.first is not None:
            await self.first.kill()
        wire.close_all(self.take_network())
