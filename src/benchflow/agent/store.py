"""A folder of finished things: each is built once, whole or absent, however many ask for it at the same time.

`ensure` builds into a scratch folder beside the others and publishes it by a rename. Who builds holds a lock on a file
that all processes see; it is freed when its holder dies, and the next one removes what that one left.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from benchflow.agent.process import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

LOCK_INTERVAL = 0.1
"""Seconds between looks at a lock that another process holds. The kernel has no event for it that could be awaited."""

_SCRATCH = ".building"

_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Path, asyncio.Lock]] = WeakKeyDictionary()


async def ensure(store: Path, name: str, build: Callable[[Path], Awaitable[None]]) -> Path:
    """The folder `store/name`, made by `build` in an empty folder it is given if it does not exist yet.

    Everyone can read it. Raises what `build` raises, and OSError; then, as after a cancellation, nothing is left.
    """
    final = store / name
    if final.is_dir():
        return final
    scratch = store / _SCRATCH
    scratch.mkdir(parents=True, exist_ok=True)
    async with _locked(scratch / f"{name}.lock"):
        if final.is_dir():
            return final
        for leftover in scratch.glob(f"{name}.tmp*"):
            await in_thread(shutil.rmtree, leftover, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{name}.tmp", dir=scratch))
        try:
            await build(folder)
            await in_thread(_publish, folder, final)
        finally:
            await in_thread(shutil.rmtree, folder, ignore_errors=True)
    return final


@asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    """Exclusive in this process and between processes. Waiting for it can be cancelled."""
    here = _locks.setdefault(asyncio.get_running_loop(), {}).setdefault(path, asyncio.Lock())
    async with here:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            while not _try_lock(handle):  # noqa: ASYNC110 - see LOCK_INTERVAL
                await asyncio.sleep(LOCK_INTERVAL)
            yield
        finally:
            os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _publish(folder: Path, final: Path) -> None:
    """Let every user read everything and run what its owner can run (who builds is not who uses), then name it."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode & 0o777
            path.chmod(mode | 0o444 | (0o111 if path.is_dir() or mode & 0o100 else 0))
    folder.rename(final)
