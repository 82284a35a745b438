"""The host's end of the sockets to processes behind the wall, for asyncio."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from benchflow.sandbox.local.guest import wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self


async def readable(descriptor: int) -> None:
    """Wait until there is something to read. By number: to look up a socket, a loop describes it at length."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(descriptor, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Channel:
    """One socket to a process behind the wall. One task at a time receives."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock

    @classmethod
    def pair(cls) -> tuple[Self, socket.socket]:
        """A channel and its far end, to be passed on and closed."""
        near, far = wire.pair()
        return cls(near), far

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def closed(self) -> bool:
        return self._sock.fileno() == -1

    @property
    def ended(self) -> bool:
        """Whether the far end is gone. Known at once: the kernel closes it before anything else of its process."""
        if self.closed:
            return True
        try:
            return not self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def ask(self, message: Mapping[str, object], descriptors: Sequence[int] = ()) -> Channel:
        """Send a request with a reply socket of its own, and return that. Raises OSError when nobody is there."""
        reply, far = Channel.pair()
        try:
            await self.send(message, [far.fileno(), *descriptors])
        except BaseException:
            reply.close()
            raise
        finally:
            far.close()
        return reply

    async def send(self, message: Mapping[str, object], descriptors: Sequence[int] = ()) -> None:
        """Send, waiting while the far end does not read. Raises OSError when nobody is there."""
        while True:
            try:
                wire.send(self._sock, message, descriptors)
            except BlockingIOError:
                await self._writable()
            else:
                return

    def post(self, message: Mapping[str, object], descriptors: Sequence[int] = ()) -> None:
        """Send a first message, for which there always is room. Raises OSError when nobody is there."""
        wire.send(self._sock, message, descriptors)

    def take(self) -> tuple[wire.Message | None, list[int]]:
        """What `receive` gives, of what is already there. Raises BlockingIOError."""
        return wire.receive(self._sock)

    async def receive(self) -> tuple[wire.Message | None, list[int]]:
        """The next message and its descriptors, which belong to the caller; None at the end."""
        while True:
            try:
                return wire.receive(self._sock)
            except BlockingIOError:
                await readable(self._sock.fileno())

    def shut(self) -> None:
        """Let the far end see the end, while what it still sends can be received."""
        self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._sock.close()

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        descriptor = self._sock.fileno()
        loop.add_writer(descriptor, _resolve, ready)
        try:
            await ready
        finally:
            loop.remove_writer(descriptor)
