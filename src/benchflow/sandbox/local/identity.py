"""As whom boxes run: as this machine's root, or as root of a user namespace that maps one uid or many.

With ranges of subordinate ids (/etc/subuid, /etc/subgid) a box has all the users an image expects. Without them
everything in it belongs to one user, who is root there: `chown`, other users, and package managers that use them
fail.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MIN_RANGE = 65536
"""Subordinate ids that a user must have for boxes to have users: images use ids up to `nobody`, 65534."""

MAP_TIMEOUT = 10.0
"""Seconds that newuidmap and newgidmap may take."""

_CAP_SYS_ADMIN = 21


@dataclass(frozen=True, slots=True)
class Identity:
    """`uids` and `gids` are (first, count) of the ranges that are mapped behind id 0."""

    kind: Literal["root", "ranges", "single"]
    uids: tuple[int, int] = (0, 0)
    gids: tuple[int, int] = (0, 0)

    @property
    def flavor(self) -> str:
        match self.kind:
            case "root":
                return "root"
            case "single":
                return f"user-{os.getuid()}"
            case _:
                return f"user-{os.getuid()}-{self.uids[0]}-{self.uids[1]}-{self.gids[0]}-{self.gids[1]}"

    async def map(self, pid: int) -> None:
        """Write the maps of a process that has just entered a user namespace. Raises OSError."""
        for tool, own, (first, count) in (
            ("newuidmap", os.getuid(), self.uids),
            ("newgidmap", os.getgid(), self.gids),
        ):
            words = [tool, str(pid), "0", str(own), "1", "1", str(first), str(count)]
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
            )
            async with asyncio.timeout(MAP_TIMEOUT):
                _, complaint = await process.communicate()
            if process.returncode != 0:
                raise OSError(f"{tool} failed: {complaint.decode(errors='replace').strip()}")


def current() -> Identity:
    """What this process can be."""
    if os.geteuid() == 0 and _effective() >> _CAP_SYS_ADMIN & 1:
        return Identity("root")
    uids, gids = subordinate(Path("/etc/subuid")), subordinate(Path("/etc/subgid"))
    if uids and gids and shutil.which("newuidmap") and shutil.which("newgidmap"):
        return Identity("ranges", uids, gids)
    return Identity("single")


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def subordinate(path: Path, *, uid: int | None = None) -> tuple[int, int] | None:
    """The first large enough range that a user has in a subuid or subgid file."""
    uid = os.getuid() if uid is None else uid
    names = {str(uid), user_name(uid)}
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, rest = line.partition(":")
        first, _, count = rest.partition(":")
        if name in names and first.isdecimal() and count.isdecimal() and int(count) >= MIN_RANGE:
            return int(first), MIN_RANGE
    return None


def _effective() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0
