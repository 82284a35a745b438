"""A listening socket inside a container whose connections are accepted here, without any network between.

A socket belongs to the network it was made in, not to the process that holds it. So a thread of this process enters
the container's network, makes the socket there, and ends; the descriptor stays. The socket itself says whose
connections it brings, and it works in a container that has nothing but a loopback. Needs root and a local engine.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from typing import TYPE_CHECKING

from benchflow.sandbox.docker.handlers import Handlers
from benchflow.settle import finished

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchflow.sandbox.base import ConnectionHandler
    from benchflow.sandbox.docker.near import Near

BACKLOG = 512
"""Connections that may wait to be accepted."""

LINE_LIMIT = 1024 * 1024
"""Bytes that a connection's reader buffers."""


def bind_inside(near: Near, port: int) -> socket.socket:
    """A socket that listens on 127.0.0.1:`port` inside. Blocks. Raises OSError."""
    namespace = near.net_namespace()
    made: list[socket.socket | OSError] = []

    def work() -> None:
        try:
            os.setns(namespace, os.CLONE_NEWNET)
            made.append(_listening(port))
        except OSError as error:
            made.append(error)

    # A thread that ends with this: one of a pool would carry the container's network into its next work.
    thread = threading.Thread(target=work, name="benchflow-listen")
    thread.start()
    thread.join()
    os.close(namespace)
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


def _listening(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


class InjectedListener:
    """See `benchflow.sandbox.base.Listener`. `on_close` is called once."""

    def __init__(self, port: int, handler: ConnectionHandler, on_close: Callable[[InjectedListener], None]) -> None:
        self.port = port
        self._on_close = on_close
        self._handlers = Handlers(handler)
        self._server: asyncio.Server | None = None

    async def serve(self, listening: socket.socket) -> None:
        """Accept from now on; the socket is ours from here."""
        try:
            self._server = await asyncio.start_server(self._handlers.start, sock=listening, limit=LINE_LIMIT)
        except BaseException:
            listening.close()
            raise

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await finished(self._close(server))

    async def _close(self, server: asyncio.Server) -> None:
        server.close()
        await self._handlers.close()
        await server.wait_closed()
        self._on_close(self)
