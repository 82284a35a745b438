"""A server of this process, seen from inside a sandbox: bytes carried over the sandbox's own listening socket.

Works without any network, and makes exactly one server reachable. A slow reader holds its writer back, in both
directions.
"""

from __future__ import annotations

import asyncio
import ipaddress
from contextlib import suppress
from urllib.parse import urlsplit

CHUNK = 64 * 1024
"""Bytes carried at a time; a slow reader holds its writer back by this much."""

type Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def is_loopback(url: str) -> bool:
    """Whether a URL names this machine by its loopback address."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def carry(client: Pair, server: Pair) -> None:
    """Carry bytes both ways until the server's side has ended or either side broke; closes both.

    A client that has said all it wants to say may go on listening; a server that has closed wants to hear no more.
    When cancelled, what was not carried yet is dropped.
    """
    writers = client[1], server[1]
    try:
        try:
            async with asyncio.TaskGroup() as group:
                upward = group.create_task(_pump(client[0], server[1]))
                await _pump(server[0], client[1])
                upward.cancel()
        except* OSError:
            pass  # either side hung up; the other learns it by the close below
        for writer in writers:
            writer.close()
        for writer in writers:
            with suppress(OSError):
                await writer.wait_closed()
    finally:
        for writer in writers:
            writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
