"""What a sandbox does inside its container apart from running commands: through the kernel, or through the engine.

`Inside` is the seam. `Near` (this machine, as root) costs no engine call; `Far` works everywhere.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from benchflow.settle import finished

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from benchflow.sandbox.archive import Item
    from benchflow.sandbox.docker.near import Near
    from benchflow.sandbox.docker.rooted import Rooted


class Inside(Protocol):
    """Raises, besides what each method says: ProcessLookupError when the container is gone, aiodocker.DockerError
    when the engine fails, OSError otherwise."""

    @property
    def near(self) -> Near | None:
        """The kernel's view, where there is one."""
        ...

    async def lives(self) -> bool:
        """Whether the container is not even about to end; asked when one of its processes was killed by somebody."""
        ...

    async def kill_marked(self, mark: str, user: str) -> None:
        """Kill everything that the exec with this mark, which ran as `user`, started. Raises TimeoutError."""
        ...

    async def input_abandoned(self, pid: int, mark: str, user: str) -> bool:
        """Whether nobody reads the input of an exec any more: its init has the number `pid` on the engine's machine."""
        ...

    async def signal(self, number: int, pid: int, mark: str, user: str, *, adopted: bool) -> None:
        """Send a signal to the command of an exec, not to what it started; `adopted` says that an init is above it."""
        ...

    async def kill_all(self, keep: Collection[int]) -> None:
        """Kill everything but the container's own processes and those in `keep`. Raises TimeoutError."""
        ...

    async def read(self, path: str, limit: int) -> bytes:
        """The content of a regular file. Raises FileNotFoundError; ArchiveError for another kind or a longer one."""
        ...

    async def get(self, path: str, target: Path) -> None:
        """Copy a file or folder to the host. Raises FileNotFoundError and ArchiveError."""
        ...

    async def put(self, items: Sequence[Item], target: str, owner: tuple[int, int]) -> None:
        """Write `items` below `target`, or as `target`; folders that exist are left as they are."""
        ...


class ThroughKernel:
    """`Near` without blocking the loop."""

    def __init__(self, near: Near) -> None:
        self.near = near

    async def lives(self) -> bool:
        return self.near.lives()

    async def kill_marked(self, mark: str, user: str) -> None:  # noqa: ARG002  root sees every environment
        await asyncio.to_thread(self.near.kill_marked, mark)

    async def input_abandoned(self, pid: int, mark: str, user: str) -> bool:  # noqa: ARG002  the number is enough
        return await asyncio.to_thread(self.near.input_abandoned, pid)

    async def signal(self, number: int, pid: int, mark: str, user: str, *, adopted: bool) -> None:  # noqa: ARG002
        await asyncio.to_thread(self.near.signal_command, number, pid, adopted=adopted)

    async def kill_all(self, keep: Collection[int]) -> None:
        await asyncio.to_thread(self.near.kill_all, keep)

    async def read(self, path: str, limit: int) -> bytes:
        return await self._with_files(lambda files: files.read(path, limit))

    async def get(self, path: str, target: Path) -> None:
        await self._with_files(lambda files: files.get(path, target))

    async def put(self, items: Sequence[Item], target: str, owner: tuple[int, int]) -> None:
        await self._with_files(lambda files: files.put(items, target, owner))

    async def _with_files[T](self, work: Callable[[Rooted], T]) -> T:
        """Do blocking work in a thread; a caller that is cancelled waits until that has noticed."""
        halted = threading.Event()

        def body() -> T:
            with self.near.files(halted.is_set) as files:
                return work(files)

        task = asyncio.ensure_future(asyncio.to_thread(body))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            halted.set()
            await finished(asyncio.gather(task, return_exceptions=True))
            raise


async def process_end(pid: int) -> None:
    """Until the process `pid` of this machine has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        with suppress(ValueError):
            loop.remove_reader(descriptor)
        os.close(descriptor)
