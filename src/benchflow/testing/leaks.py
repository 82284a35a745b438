"""What a sandbox could leave behind on this machine, and how to see it: processes, mounts, control groups, folders,
descriptors.

The machine may be busy with other things, so nothing is blamed on us by its mere appearance. A process is ours when
it descends from this one or carries our token in its environment; a mount, a control group or a folder is ours when
its name carries the id of one of our sandboxes, or when it is in a namespace held by a process of ours. Connections
to a named peer (a daemon's socket, another machine) may be kept in a pool: they are told apart from other
descriptors and are judged only when the backend has been closed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.sandbox.procfs import command_line, environment, read_proc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping

SETTLE_TIMEOUT = 60.0
"""Seconds that what is already on its way out (an exiting shim, a closing transport) gets before it is a leak."""

SETTLE_STEP = 0.05

KERNEL = 2
"""The process whose children are the kernel's own threads."""

CGROUP_DEPTH = 6
"""How deep below /sys/fs/cgroup names are looked at."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What there is at one moment. Each entry is a text that says what it is, fit to be shown.

    `mounts` are by namespace: a namespace that is gone, or was not there before, is judged by its processes.
    `common` are the mounts of our own namespace, whosever they are: others get copies of them.
    """

    processes: frozenset[str]
    mounts: Mapping[str, frozenset[str]]
    common: frozenset[str]
    cgroups: frozenset[str]
    folders: frozenset[str]
    descriptors: tuple[str, ...]
    connections: tuple[str, ...]


def footprint(token: str, ids: Collection[str]) -> Footprint:
    """What there is now that is ours: `token` is in the environment of our processes, `ids` are our sandboxes."""
    ours = set(_our_processes(token))
    descriptors, connections = _descriptors()
    return Footprint(
        processes=frozenset(_describe(pid) for pid in ours) - {""},
        mounts=_mounts(ours, ids),
        common=frozenset(_place(line) for line in _mountinfo("self")),
        cgroups=frozenset(_named(Path("/sys/fs/cgroup"), ids, CGROUP_DEPTH)),
        folders=frozenset(name for folder, depth in run_folders().items() for name in _named(folder, ids, depth)),
        descriptors=descriptors,
        connections=connections,
    )


def leaks(before: Footprint, after: Footprint, *, pooled: bool) -> list[str]:
    """What `after` has and `before` had not. With `pooled`, connections to named peers are left out."""
    known = {_identity(process) for process in before.processes}
    found = [f"process: {entry}" for entry in sorted(after.processes) if _identity(entry) not in known]
    found += [
        f"{kind}: {entry}"
        for kind, old, new in (
            *(("mount", before.mounts.get(space, now) | after.common, now) for space, now in after.mounts.items()),
            ("cgroup", before.cgroups, after.cgroups),
            ("folder", before.folders, after.folders),
        )
        for entry in sorted(new - old)
    ]
    if len(after.descriptors) > len(before.descriptors):
        found += [f"descriptor: {entry}" for entry in _surplus(before.descriptors, after.descriptors)]
    if not pooled and len(after.connections) > len(before.connections):
        found += [f"connection: {entry}" for entry in _surplus(before.connections, after.connections)]
    return found


async def settled(find: Callable[[], Awaitable[list[str]]]) -> list[str]:
    """What `find` still finds after it was given time to become empty."""
    deadline = time.monotonic() + SETTLE_TIMEOUT
    while (found := await find()) and time.monotonic() < deadline:
        await asyncio.sleep(SETTLE_STEP)
    return found


def run_folders() -> dict[Path, int]:
    """Where sandboxes keep what they need while they run, and how deep names are looked at there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    temporary = {Path(tempfile.gettempdir()): 1, Path("/var/tmp"): 1, Path("/dev/shm"): 1}
    return {**temporary, Path("/run/benchflow"): 4, runtime / "benchflow": 4, cache / "benchflow": 3}


def _our_processes(token: str) -> Iterator[int]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - only the names are wanted
    parents = {pid: parent for pid in pids if (parent := _parent(pid)) is not None}
    me = os.getpid()
    wanted = token.encode()
    for pid, parent in parents.items():
        if pid == me or KERNEL in (pid, parent):
            continue
        if _descends(pid, me, parents) or wanted in _or_nothing(environment, pid):
            yield pid


def _bytes(path: str) -> bytes:
    return _or_nothing(read_proc, path)


def _or_nothing[T](read: Callable[[T], bytes], what: T) -> bytes:
    """What `read` says, or nothing of a process that is gone or not ours to look at."""
    try:
        return read(what)
    except OSError:
        return b""


def _parent(pid: int) -> int | None:
    fields = _bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split(None, 2)
    return int(fields[1]) if len(fields) > 1 else None


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == ancestor:
            return True
    return False


def _describe(pid: int) -> str:
    """Pid, start time and command; empty for a process that is gone."""
    record = _bytes(f"/proc/{pid}/stat")
    fields = record.rpartition(b")")[2].split()
    if len(fields) < 20:
        return ""
    command = _or_nothing(command_line, pid).replace(b"\0", b" ").decode(errors="replace").strip()
    name = command or record.partition(b"(")[2].rpartition(b")")[0].decode(errors="replace")
    return f"{pid} started {int(fields[19])}: {name[:200]}"


def _identity(process: str) -> str:
    """Of a description what stays when the process becomes another program: its pid and start time."""
    return process.partition(":")[0]


def _mounts(ours: Collection[int], ids: Collection[str]) -> dict[str, frozenset[str]]:
    """In our own namespace, which others use too, only what carries one of `ids`; in those of our processes, what is
    mounted where. A copy that one of them has of somebody's mount stays there when that goes away: it is not new."""
    here = _namespace("self")
    found = {here: frozenset(line for line in _mountinfo("self") if any(name in line for name in ids))}
    for pid in sorted(ours):
        space = _namespace(str(pid))
        if space and space not in found:
            found[space] = frozenset(_place(line) for line in _mountinfo(str(pid)))
    return found


def _place(line: str) -> str:
    """Where a mount is and of which kind: the same for a mount that took the place of an equal one."""
    head, _, tail = line.partition(" - ")
    return f"{head.split()[4]} {tail.split()[0]}"


def _mountinfo(pid: str) -> list[str]:
    return _bytes(f"/proc/{pid}/mountinfo").decode(errors="replace").splitlines()


def _namespace(pid: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    except OSError:
        return ""


def _named(folder: Path, ids: Collection[str], depth: int) -> Iterator[str]:
    """Entries below `folder`, at most `depth` deep, whose name carries one of `ids`."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if any(name in entry.name for name in ids):
                yield entry.path
            elif depth > 1 and entry.is_dir(follow_symlinks=False):
                yield from _named(Path(entry.path), ids, depth - 1)


def _descriptors() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Our open descriptors: those that nobody may keep, and connections that a pool may."""
    plain: list[str] = []
    connections: list[str] = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - only the names are wanted
        with suppress(OSError):
            target = str(Path(f"/proc/self/fd/{name}").readlink())
            peer = _peer(int(name))
            (connections if peer else plain).append(f"{name} -> {target} {peer}".strip())
    return tuple(sorted(plain)), tuple(sorted(connections))


def _peer(descriptor: int) -> str:
    """Whom a socket is connected to, if that is somebody with a name outside this machine's loopback."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return ""
    with socket.socket(fileno=os.dup(descriptor)) as duplicate:
        try:
            name = duplicate.getpeername()
        except OSError:
            return ""
    if isinstance(name, tuple):
        return "" if str(name[0]).startswith(("127.", "::1")) else f"to {name[0]}:{name[1]}"
    return f"to {os.fsdecode(name)}" if name else ""


def _surplus(before: Collection[str], after: Collection[str]) -> list[str]:
    return [entry for entry in after if entry not in set(before)]
