"""Standard error of an agent: passed to the log line by line, its end kept as evidence for errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from benchflow.acp.framing import LineSplitter

if TYPE_CHECKING:
    from collections.abc import Callable

STDERR_KEPT = 8 * 1024
"""Bytes of the end of standard error that errors may quote."""

STDERR_LINE_LIMIT = 64 * 1024
"""Bytes of the longest line passed to the log; the rest of a longer one is left out."""

READ_SIZE = 64 * 1024


class Stderr:
    """Drains a reader from the moment it is made until `close`."""

    def __init__(self, reader: asyncio.StreamReader, log: Callable[[str], None]) -> None:
        self._reader = reader
        self._log = log
        self._kept = b""
        self._task = asyncio.create_task(self._drain())

    @property
    def tail(self) -> str:
        """The end of what was written so far."""
        return self._kept.decode("utf-8", "replace").strip()

    async def settle(self, seconds: float) -> None:
        """Wait for the end of the stream, at most so long."""
        await asyncio.wait({self._task}, timeout=seconds)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _drain(self) -> None:
        splitter = LineSplitter(STDERR_LINE_LIMIT)
        while data := await self._reader.read(READ_SIZE):
            self._kept = (self._kept + data)[-STDERR_KEPT:]
            for line in splitter.feed(data):
                self._log(line.decode("utf-8", "replace").rstrip())
        if last := splitter.end():
            self._log(last.decode("utf-8", "replace").rstrip())
