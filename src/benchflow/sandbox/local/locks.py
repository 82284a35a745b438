"""Locks between processes that an event loop can wait for: advisory locks on files, dropped by the kernel at death."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path


@contextmanager
def briefly(path: Path, *, shared: bool) -> Iterator[None]:
    """Hold a lock for a moment, blocking the thread: only for work that takes no noticeable time."""
    descriptor = open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@asynccontextmanager
async def exclusively(path: Path, *, on_wait: Callable[[], None] = lambda: None) -> AsyncIterator[None]:
    """Hold the lock at `path` alone, waiting for as long as another process has it. The file is removed at the end."""
    while True:
        descriptor = await _locked(path, on_wait)
        if _is_at(descriptor, path):
            break
        # Whoever had it removed the file: the lock we got is on a name that is gone.
        os.close(descriptor)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108  a call without a wait, in an async function
        os.close(descriptor)


def open_lock(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock at `path`."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


async def _locked(path: Path, on_wait: Callable[[], None]) -> int:
    descriptor = open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        on_wait()
        await _wait_in_thread(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


async def _wait_in_thread(descriptor: int) -> None:
    """Block a thread of its own on the lock, so that waiting costs no worker of the shared pool.

    When the wait is cancelled the descriptor is closed: here, or by the thread once it gets the lock.
    """
    loop = asyncio.get_running_loop()
    granted = asyncio.Event()
    handover = threading.Lock()
    ended: set[str] = set()

    def wait() -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with handover:
            if "cancelled" in ended:
                os.close(descriptor)
                return
            ended.add("granted")
        with suppress(RuntimeError):  # the loop was closed while we waited
            loop.call_soon_threadsafe(granted.set)

    threading.Thread(target=wait, name="benchflow-lock", daemon=True).start()
    try:
        await granted.wait()
    except asyncio.CancelledError:
        with handover:
            ended.add("cancelled")
            if "granted" in ended:
                os.close(descriptor)
        raise


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
