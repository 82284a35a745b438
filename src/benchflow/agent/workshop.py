"""Python agents for another kind of machine than this one, built inside a throw-away sandbox of that kind.

A Node agent can be put together here for any C library and processor, because npm knows what each needs. A Python one
cannot: its packages may have to be compiled, and its interpreter must be one that runs there. So a sandbox is made from
the task's own image, with network and nothing else; uv goes in, the image's own Python (or one that uv fetches) is
copied with the packages as it is done here, and the finished folder comes out. Then the sandbox is gone.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.agent.process import KEPT_LINES, run
from benchflow.agent.python_env import SCRIPT
from benchflow.agent.tools import find_uv
from benchflow.errors import AgentInstallError

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchflow.agent.platforms import Platform
    from benchflow.agent.process import Log
    from benchflow.agent.spec import Install
    from benchflow.sandbox.base import Sandbox

type Workshop = Callable[[], Sandbox]
"""Makes a sandbox of the other kind, with network, that is not started yet."""

ROOM = "/opt/benchflow/workshop"
"""Where things are done in the throw-away sandbox."""

_FIND = f"""
cd / || exit
{ROOM}/uv python find --system --no-managed-python "$1" && exit
{ROOM}/uv python install --no-bin "$1" && {ROOM}/uv python find --managed-python "$1"
"""
_ENV = {"UV_NO_CONFIG": "1", "UV_CACHE_DIR": f"{ROOM}/cache", "UV_PYTHON_INSTALL_DIR": f"{ROOM}/pythons"}

_NO_NETWORK = re.compile(r"(?i)dns error|error sending request|network is unreachable|connection refused|timed out")


async def build_inside(folder: Path, install: Install, platform: Platform, workshop: Workshop, log: Log) -> None:
    """Like `build_python`, for `platform`, in a sandbox that `workshop` makes.

    Raises AgentInstallError that says what the sandbox lacks (a Python, a way to the package index, a tool), and
    SandboxError when the sandbox itself fails. The sandbox is gone in any case.
    """
    sandbox = workshop()
    log(f"building inside a sandbox of the kind {platform}")
    with tempfile.TemporaryDirectory(prefix="benchflow-workshop-") as scratch:
        uv = await _fetch_uv(Path(scratch), platform, log)
        async with sandbox:
            await sandbox.put(uv, f"{ROOM}/uv")
            await sandbox.put(SCRIPT, f"{ROOM}/{SCRIPT.name}")
            python = await _find_python(sandbox, install.python, platform)
            log(f"copying the image's {python}")
            command = [python, "-I", f"{ROOM}/{SCRIPT.name}", f"{ROOM}/bundle", f"{ROOM}/uv", *install.pypi]
            printed, ok = await _run(sandbox, command)
            for line in printed.splitlines():
                log(line)
            if not ok:
                raise _failed(f"could not be built inside a {platform} sandbox", printed)
            await sandbox.get(f"{ROOM}/bundle", folder)


async def _fetch_uv(scratch: Path, platform: Platform, log: Log) -> Path:
    """The uv that runs on `platform`."""
    own = await find_uv(log)
    await run(
        [
            *(own, "pip", "install", "--quiet", "--no-deps", "--target", str(scratch), "--python", sys.executable),
            *("--python-platform", platform.triple, "uv"),
        ],
        cwd=scratch,
        log=log,
    )
    return scratch / "bin" / "uv"


async def _find_python(sandbox: Sandbox, wanted: str, platform: Platform) -> str:
    printed, ok = await _run(sandbox, ["/bin/sh", "-c", _FIND, "sh", wanted])
    paths = [line for line in printed.splitlines() if line.startswith("/")]
    if not ok or not paths:
        raise _failed(f"needs Python {wanted}: this {platform} image has none, and none could be fetched", printed)
    return paths[-1]


async def _run(sandbox: Sandbox, command: list[str]) -> tuple[str, bool]:
    """What a command printed, and whether it ended well."""
    done = await sandbox.exec(command, user=0, cwd="/", env=_ENV)
    return (done.stdout + done.stderr).decode("utf-8", "replace"), done.ok


def _failed(what: str, printed: str) -> AgentInstallError:
    reason = "; a download failed inside it, so it may have no network" if _NO_NETWORK.search(printed) else ""
    return AgentInstallError(
        what + reason,
        stderr="\n".join(printed.splitlines()[-KEPT_LINES:]),
        hint="use an image that has such a Python, where sandboxes have network, or one of this machine's kind",
    )
