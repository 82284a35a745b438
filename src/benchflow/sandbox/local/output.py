"""What a command prints, kept within bounds, and what it is fed, without ever blocking the loop."""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import termios
from contextlib import suppress

CHUNK = 256 * 1024


class Output:
    """The head and the tail of a stream of bytes, at most `limit` of them; the middle is counted."""

    def __init__(self, limit: int) -> None:
        self._head_room = (limit + 1) // 2
        self._tail_room = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._seen = 0

    def add(self, data: bytes) -> None:
        self._seen += len(data)
        room = self._head_room - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_room + CHUNK:
            self._trim()

    def _trim(self) -> None:
        del self._tail[: len(self._tail) - self._tail_room]

    @property
    def kept(self) -> bytes:
        if len(self._tail) > self._tail_room:
            self._trim()
        return bytes(self._head + self._tail)

    @property
    def dropped(self) -> int:
        return self._seen - len(self._head) - min(len(self._tail), self._tail_room)


class Collector:
    """Reads a pipe into an `Output` as it fills. Owns the descriptor."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self.output = Output(limit)
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._reading = True
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    def _read(self) -> bool:
        """Whether somebody may still write."""
        try:
            data = os.read(self._descriptor, CHUNK)
        except BlockingIOError:
            return True
        self.output.add(data)
        if not data:
            self._stop()
        return bool(data)

    def _stop(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._descriptor)

    def settle(self) -> int | None:
        """Take what has been written so far. The descriptor if somebody may still write, else None.

        Bounded by what lies in the pipe now, so that whoever goes on writing cannot hold us.
        """
        if not self._reading:
            return None
        waiting = array.array("i", [0])
        fcntl.ioctl(self._descriptor, termios.FIONREAD, waiting)
        left = waiting[0]
        while left > 0:
            data = os.read(self._descriptor, min(left, CHUNK))
            self.output.add(data)
            left -= len(data)
        return self._descriptor if self._read() else None

    def close(self) -> None:
        self._stop()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Feeder:
    """Writes bytes to a pipe as room appears, then closes it. Owns the descriptor."""

    def __init__(self, descriptor: int, data: bytes) -> None:
        self._descriptor = descriptor
        self._rest = memoryview(data)
        self._loop = asyncio.get_running_loop()
        self._waiting = False
        os.set_blocking(descriptor, False)
        self._write()

    def _write(self) -> None:
        try:
            while self._rest:
                self._rest = self._rest[os.write(self._descriptor, self._rest[:CHUNK]) :]
        except BlockingIOError:
            if not self._waiting:
                self._waiting = True
                self._loop.add_writer(self._descriptor, self._write)
            return
        except OSError:
            # A command need not read its input.
            self._rest = memoryview(b"")
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            if self._waiting:
                self._loop.remove_writer(self._descriptor)
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1
