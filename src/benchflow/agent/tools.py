"""uv, which fetches everything that comes from PyPI: found on this machine, or put beside our caches once."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.agent import store
from benchflow.agent.process import run
from benchflow.errors import AgentInstallError

if TYPE_CHECKING:
    from benchflow.agent.process import Log


def cache_folder() -> Path:
    """Where everything that can be made again is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchflow"


async def find_uv(log: Log) -> str:
    """A uv that works: the one on PATH, the one in our cache, or a new one from PyPI in our cache.

    Raises AgentInstallError when it can be neither found nor fetched.
    """
    home = cache_folder() / "uv"
    own = home / "bin" / "uv"
    for candidate in (shutil.which("uv"), str(own)):
        if candidate and await _works(candidate):
            return candidate

    async def build(folder: Path) -> None:
        log("getting uv from PyPI")
        await run([sys.executable, "-m", "venv", str(folder)], cwd=folder, log=log)
        await run([str(folder / "bin" / "pip"), "install", "--quiet", "uv"], cwd=folder, log=log)

    await store.ensure(home.parent, home.name, build)
    if not await _works(str(own)):
        raise AgentInstallError(f"{own} does not work", hint=f"remove {home}")
    return str(own)


async def _works(command: str) -> bool:
    """A version manager's shim is on PATH even when nothing stands behind it, so asking is the only test."""
    try:
        await run([command, "--version"], cwd=Path("/"), log=lambda _: None)
    except AgentInstallError:
        return False
    return True
