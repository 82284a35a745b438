"""Which processes inside a sandbox own a listening TCP socket: servers that a solution may consist of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchflow.sandbox.base import Sandbox

_LISTEN = "0A"
_PROBE = """
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null
for process in /proc/[0-9]*; do
  echo "@${process#/proc/}"
  LC_ALL=C ls -l "$process/fd" 2>/dev/null
done
true
"""
PROBE_TIMEOUT = 30.0
"""Seconds the look into /proc may take."""


async def listening_pids(sandbox: Sandbox, *, user: str | int | None = None) -> list[int]:
    """Pids, as seen inside, that own a listening TCP socket; none when it cannot be told.

    It looks as `user`, because not even root may look at the descriptors of another user's processes without an
    extra capability.
    """
    seen = await sandbox.exec(["/bin/sh", "-c", _PROBE], user=user, cwd="/", timeout=PROBE_TIMEOUT)
    return parse_listeners(seen.text)


def parse_listeners(text: str) -> list[int]:
    inodes: set[str] = set()
    owners: list[int] = []
    pid: int | None = None
    for line in text.splitlines():
        fields = line.split()
        if line.startswith("@"):
            pid = int(line[1:]) if line[1:].isascii() and line[1:].isdigit() else None
        elif pid is None and len(fields) > 9 and fields[3] == _LISTEN:
            inodes.add(fields[9])
        elif pid is not None and (found := re.search(r"-> socket:\[(\d+)\]$", line)) and found[1] in inodes:
            owners.append(pid)
    return sorted(set(owners) - {1})
