"""The handlers of a listener's connections, each a task of its own, none able to hurt the others."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

    from benchflow.sandbox.base import ConnectionHandler

_log = logging.getLogger(__name__)


class Handlers:
    """Runs `handler` on connections, until `close` drops those that are left."""

    def __init__(self, handler: ConnectionHandler) -> None:
        self._handler = handler
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.create_task(self._handle(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _handle(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            await self._handler(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            writer.transport.abort()
        except Exception:  # noqa: BLE001
            # One connection's failure is not the sandbox's: the others go on, and the log has the reason.
            _log.exception("a connection from a sandbox failed")
            writer.transport.abort()
        finally:
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()
