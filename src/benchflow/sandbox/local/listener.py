"""Sockets that listen inside a box and are served on the host."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

    from benchflow.sandbox.base import ConnectionHandler

BUFFER_LIMIT = 1024 * 1024
"""Bytes of one connection that are buffered before whoever is inside has to wait."""


class LocalListener:
    """See `Listener`. Make one with `serve`."""

    def __init__(self, server: asyncio.Server, port: int, connections: _Connections) -> None:
        self._server = server
        self._port = port
        self._connections = connections

    @property
    def port(self) -> int:
        return self._port

    async def close(self) -> None:
        self._server.close()
        await self._connections.drop()


class _Connections:
    """The connections of one listener, each with the task that handles it."""

    def __init__(self, handler: ConnectionHandler) -> None:
        self._handler = handler
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._dropping = False

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            # A far side that goes away is the handler's everyday life; any other failure is reported by the loop.
            with suppress(ConnectionError):
                await self._handler(reader, writer)
        except asyncio.CancelledError:
            # By `drop`; the stream server of asyncio would report it as a failure.
            if not self._dropping:
                raise
        finally:
            del self._open[task]
            writer.close()

    async def drop(self) -> None:
        """Cancel every handler, and wait until all have ended."""
        self._dropping = True
        tasks = dict(self._open)
        for task, writer in tasks.items():
            task.cancel()
            writer.transport.abort()
        if tasks:
            await asyncio.wait(tasks)


async def serve(handler: ConnectionHandler, sock: socket.socket, port: int) -> LocalListener:
    """Serve a listening socket that was made inside a box."""
    connections = _Connections(handler)
    try:
        server = await asyncio.start_server(connections.accept, sock=sock, limit=BUFFER_LIMIT, start_serving=False)
        try:
            await server.start_serving()
        except BaseException:
            server.close()
            raise
    except BaseException:
        sock.close()
        raise
    return LocalListener(server, port, connections)
