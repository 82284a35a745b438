"""Which processes of an agent are still there, and which of them are servers that a solution may consist of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchflow.verify.environment import SYSTEM_PATH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchflow.sandbox.base import Sandbox

_LISTEN = "0A"
# Most often nobody is there, and then it starts no process of its own. Of processes that are not the user's own, the
# kernel would tell it nothing. What keeps a sandbox alive is root's, so only there does a name excuse a process.
_PROBE = """
found=
for process in /proc/[0-9]*; do
  case ${process#/proc/} in 1|$$|$PPID) continue ;; esac
  [ -O "$process" ] || continue
  read -r name 2>/dev/null < "$process/comm" || continue
  case "$1 $name" in
    "root docker-init"|"root podman-init"|"root tini"|"root catatonit"|"root benchflow"|"root keeper "*) ;;
    *) found="$found $process" ;;
  esac
done
[ -n "$found" ] || exit 0
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null
for process in $found; do
  read -r name 2>/dev/null < "$process/comm" || continue
  echo "@${process#/proc/}"
  echo "=$name"
  while read -r key value; do
    case $key in PPid:) echo "^$value"; break ;; esac
  done 2>/dev/null < "$process/status"
  LC_ALL=C ls -l "$process/fd" 2>/dev/null
done
true
"""
_KEEPERS = frozenset({"sh", "sleep"})
"""How processes are called that keep a sandbox alive; root sees them as its own."""

PROBE_TIMEOUT = 30.0
"""Seconds the look into /proc may take."""


@dataclass(frozen=True, slots=True)
class Alive:
    """Processes of one user, by their pids inside: servers, which are those with a listening TCP socket and what these
    have started, and the names of all others."""

    servers: tuple[int, ...] = ()
    others: tuple[tuple[int, str], ...] = ()


async def still_alive(sandbox: Sandbox, *, user: str | int | None = None) -> Alive:
    """What of `user` is running; nothing when it cannot be told.

    It looks as `user`, because not even root may look at the descriptors of another user's processes without an
    extra capability.
    """
    env = {"PATH": ":".join(SYSTEM_PATH)}
    root = user in (None, "root", 0)
    argv = ["/bin/sh", "-c", _PROBE, "sh", "root" if root else "user"]
    seen = await sandbox.exec(argv, user=user, env=env, cwd="/", timeout=PROBE_TIMEOUT)
    servers = tuple(with_descendants(parse_listeners(seen.text), parse_parents(seen.text)))
    ours = _KEEPERS if root else frozenset()
    others = [(pid, name) for pid, name in parse_names(seen.text) if pid not in servers and name not in ours]
    return Alive(servers, tuple(others))


def parse_names(text: str) -> list[tuple[int, str]]:
    """Pid and name of every process that the look says is the user's own."""
    found = re.findall(r"^@(\d+)\n=(.*)$", text, re.MULTILINE | re.ASCII)
    return [(int(pid), name) for pid, name in found if int(pid) != 1]


def parse_parents(text: str) -> dict[int, int]:
    """The parent of every process that the look says is the user's own."""
    found = re.findall(r"^@(\d+)\n=.*\n\^(\d+)$", text, re.MULTILINE | re.ASCII)
    return {int(pid): int(parent) for pid, parent in found}


def with_descendants(pids: Iterable[int], parents: Mapping[int, int]) -> list[int]:
    """The processes and all that descend from them: a server whose workers are gone answers nobody."""
    found = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def parse_listeners(text: str) -> list[int]:
    """Pids that own a listening TCP socket."""
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
