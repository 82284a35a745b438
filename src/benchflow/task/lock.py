"""A lock between processes on one machine: whoever comes second waits until the first is done or dead."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@contextlib.asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Hold the lock on file `path`, which is made if absent and never removed. Waiting can be cancelled.

    The kernel releases it when the holder ends, however it ends. Programs the holder starts do not hold it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await _wait(fd)
        yield
    finally:
        # Also ends a wait that was cancelled: a lock granted to a closed descriptor is released at once.
        os.close(fd)


async def _wait(fd: int) -> None:
    """Wait in a thread of its own: a daemon, since a blocked lock call cannot be interrupted and exit must not wait."""
    loop = asyncio.get_running_loop()
    granted = loop.create_future()

    def finish(error: OSError | None) -> None:
        if granted.done():
            return
        if error:
            granted.set_exception(error)
        else:
            granted.set_result(None)

    def block() -> None:
        error = None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as failure:
            error = failure
        with contextlib.suppress(RuntimeError):  # the loop ended while we waited
            loop.call_soon_threadsafe(finish, error)

    threading.Thread(target=block, name="benchflow-lock", daemon=True).start()
    await granted
