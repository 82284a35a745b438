"""Locks between the processes of one machine: advisory locks on files, dropped by the kernel when their holder dies.

Whoever comes second waits until the first is done or dead. Programs that a holder starts do not hold its lock.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

_here: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, Path], asyncio.Lock] = WeakValueDictionary()
"""Tasks of one loop wait for each other here, so that only the first of them needs a thread to wait for a process."""


@asynccontextmanager
async def locked(path: Path, *, on_wait: Callable[[], None] = lambda: None) -> AsyncIterator[None]:
    """Hold the lock at `path` alone, in this process and between processes. Waiting can be cancelled.

    `on_wait` is called once when another process has it. The file and its folder are made if absent, and the file is
    removed at the end. Raises OSError when it cannot be made.
    """
    async with _here.setdefault((asyncio.get_running_loop(), path), asyncio.Lock()):
        descriptor = await _take(path, on_wait)
        try:
            yield
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108  a call without a wait, in an async function
            os.close(descriptor)


@contextmanager
def briefly(path: Path, *, shared: bool) -> Iterator[None]:
    """Hold a lock for a moment, blocking the thread: only for work that takes no noticeable time. The file stays."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def hold(path: Path) -> int:
    """Hold the lock of a file that is this process's own until the descriptor, which can be written to, is closed."""
    descriptor = _open(path)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock at `path`."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not _try(descriptor)
    finally:
        os.close(descriptor)


async def _take(path: Path, on_wait: Callable[[], None]) -> int:
    """A descriptor that holds the lock at `path`."""
    told = False
    while True:
        descriptor = _open(path)
        try:
            if not _try(descriptor):
                if not told:
                    on_wait()
                told = True
                await _granted(descriptor)
            if _is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # Whoever had it removed the file: the lock we got is on a name that is gone.
        os.close(descriptor)


async def _granted(descriptor: int) -> None:
    """Block a thread of its own on the lock, so that waiting costs no worker of the shared pool.

    A blocked call cannot be interrupted. The thread blocks on a duplicate, so that a lock which it gets after its
    waiter was cancelled is on nothing but that; it is a daemon, because the end of the program must not wait for it.
    """
    loop = asyncio.get_running_loop()
    granted: asyncio.Future[None] = loop.create_future()
    own = os.dup(descriptor)

    def settle(failure: OSError | None) -> None:
        if granted.done():
            return
        if failure:
            granted.set_exception(failure)
        else:
            granted.set_result(None)

    def wait() -> None:
        failure = None
        try:
            fcntl.flock(own, fcntl.LOCK_EX)
        except OSError as error:
            failure = error
        finally:
            os.close(own)
        with suppress(RuntimeError):  # the loop was closed while we waited
            loop.call_soon_threadsafe(settle, failure)

    threading.Thread(target=wait, name="benchflow-lock", daemon=True).start()
    await granted


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
