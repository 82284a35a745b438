"""A hijacked connection: the standard streams of one process in a container, over one socket of the engine.

The engine answers the start of an exec by turning the connection into a raw one: what we send is the process's
input, what we receive are frames of its two outputs. The socket is used directly, not through a transport, because
the two directions end apart: a failed or half-closed sending side must lose nothing that is still to be received.
Reading stops while a reader's buffer is full, so memory stays flat and the process is held back instead.
"""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

READ_SIZE = 256 * 1024
"""Bytes received at once."""

BUFFER = 512 * 1024
"""Bytes of one output that wait for a reader before the process is held back; also the longest `readline`."""

CONNECT_TIMEOUT = 30.0
"""Seconds the engine may take to accept a connection."""

HEAD_LIMIT = 64 * 1024
"""Bytes of an answer's head, or of an error's text, that are read at most."""

STDOUT, STDERR = 1, 2


class Refused(Exception):
    """The engine answered the start of an exec with an error instead of a stream."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Demux:
    """Splits what arrives into pieces of the outputs, whatever the boundaries it arrives with."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._kind = STDOUT
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The pieces in `data`: which output, and its bytes."""
        start = 0
        while start < len(data):
            if self._left:
                piece = data[start : start + self._left]
                self._left -= len(piece)
                start += len(piece)
                yield self._kind, piece
                continue
            wanted = 8 - len(self._head)
            self._head += data[start : start + wanted]
            start += wanted
            if len(self._head) == 8:
                self._kind = STDERR if self._head[0] == STDERR else STDOUT
                self._left = int.from_bytes(self._head[4:], "big")
                self._head.clear()


class _Valve(asyncio.ReadTransport):
    """What a StreamReader turns off when its buffer is full."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.open.set()

    def pause_reading(self) -> None:
        self.open.clear()

    def resume_reading(self) -> None:
        self.open.set()


class Output:
    """One output of the process: a reader for whoever wants it, fed from the wire. `used` once it had something."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader(limit=BUFFER)
        self.used = False
        self._unwanted = False
        self._valve = _Valve()
        self.reader.set_transport(self._valve)

    async def feed(self, data: bytes) -> None:
        """Hand over `data`, then wait until there is room again."""
        self.used = True
        if not self._unwanted:
            self.reader.feed_data(data)
            await self._valve.open.wait()

    def discard(self) -> None:
        """Drop what comes from now on, so that the end is reached although nobody reads."""
        self._unwanted = True
        self._valve.resume_reading()

    def end(self) -> None:
        self.reader.feed_eof()


class Wire:
    """One hijacked connection. `chunks` is read by one task; sending may happen beside it."""

    def __init__(self, connection: socket.socket, early: bytes) -> None:
        self._socket = connection
        self._early = early
        self._loop = asyncio.get_running_loop()

    async def receive(self) -> bytes:
        """The next bytes; empty at the end, however it came."""
        if self._early:
            early, self._early = self._early, b""
            return early
        with suppress(OSError):
            return await self._loop.sock_recv(self._socket, READ_SIZE)
        return b""

    def send_now(self, data: bytes) -> int:
        """Send what goes without waiting; how much that was. Raises BrokenPipeError."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            raise BrokenPipeError from None

    async def send(self, data: memoryview) -> None:
        """Send everything. Raises BrokenPipeError."""
        try:
            await self._loop.sock_sendall(self._socket, data)
        except OSError:
            raise BrokenPipeError from None

    def half_close(self) -> None:
        """Tell the process that its input has ended."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Only when nobody receives or sends any more."""
        self._socket.close()


async def connect(url: str) -> socket.socket:
    """A non-blocking connection to `unix:///path` or `http://host:port`. Raises OSError."""
    if url.startswith("unix://"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await asyncio.get_running_loop().sock_connect(connection, url.removeprefix("unix://"))
        except BaseException:
            connection.close()
            raise
        return connection
    host, _, port = url.removeprefix("http://").rpartition(":")
    connection = await asyncio.to_thread(socket.create_connection, (host.strip("[]"), int(port)), CONNECT_TIMEOUT)
    connection.setblocking(False)
    return connection


async def hijack(url: str, path: str, body: dict[str, object]) -> Wire:
    """Post `body` and take the connection over. Raises Refused when the engine says no, OSError when it is gone."""
    loop = asyncio.get_running_loop()
    connection = await connect(url)
    try:
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        await loop.sock_sendall(connection, head.encode() + data)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += await _more(connection, answer)
        head_text, _, rest = answer.partition(b"\r\n\r\n")
        status = int(head_text.split(maxsplit=2)[1])
        if status not in {101, 200}:
            length = _content_length(head_text)
            while len(rest) < length:
                rest += await _more(connection, rest)
            raise Refused(status, _message(rest))
    except BaseException:
        connection.close()
        raise
    return Wire(connection, rest)


async def _more(connection: socket.socket, so_far: bytes) -> bytes:
    data = await asyncio.get_running_loop().sock_recv(connection, READ_SIZE)
    if not data or len(so_far) > HEAD_LIMIT:
        raise ConnectionError("the engine closed the connection")
    return data


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return min(int(value), HEAD_LIMIT)
    return 0


def _message(body: bytes) -> str:
    """The engine's words in the body of an error."""
    with suppress(ValueError, TypeError, KeyError):
        return str(json.loads(body)["message"])
    return body.decode("utf-8", "replace").strip()
