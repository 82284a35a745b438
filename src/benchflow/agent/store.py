"""A folder of finished things: each is built once, whole or absent, however many ask for it at the same time.

`ensure` builds into a scratch folder beside the others and publishes it by a rename. Who builds holds a lock on a file
that all processes see; it is freed when its holder dies, and the next one removes what that one left.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.agent.process import in_thread
from benchflow.locks import locked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_SCRATCH = ".building"


async def ensure(store: Path, name: str, build: Callable[[Path], Awaitable[None]]) -> Path:
    """The folder `store/name`, made by `build` in an empty folder it is given if it does not exist yet.

    Everyone can read it. Raises what `build` raises, and OSError; then, as after a cancellation, nothing is left.
    """
    final = store / name
    if final.is_dir():
        return final
    scratch = store / _SCRATCH
    scratch.mkdir(parents=True, exist_ok=True)
    async with locked(scratch / f"{name}.lock"):
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


def _publish(folder: Path, final: Path) -> None:
    """Let every user read everything and run what its owner can run (who builds is not who uses), then name it."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode & 0o777
            path.chmod(mode | 0o444 | (0o111 if path.is_dir() or mode & 0o100 else 0))
    folder.rename(final)
