"""Finding and ending processes inside a box, by its own /proc.

Trees are ended in two steps: stop every member until no new one appears (a stopped process cannot fork), then
kill them all. So a tree that forks as fast as it is killed is still caught.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


IDLE_PATIENCE = 0.05
"""Seconds that processes which are about to end get before a box counts as busy."""

_PF_EXITING = 0x4


class Process(NamedTuple):
    pid: int
    parent: int
    state: str


def snapshot() -> list[Process]:
    """Every process of this /proc but those that run no code any more: zombies, and what is about to be one."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if len(fields) > 6 and fields[0] not in (b"Z", b"X") and not int(fields[6]) & _PF_EXITING:
            found.append(Process(int(name), int(fields[1]), fields[0].decode("ascii", "replace")))
    return found


def descendants(root: int) -> set[int]:
    """The pids of everything below `root`."""
    children: dict[int, list[int]] = {}
    for process in snapshot():
        children.setdefault(process.parent, []).append(process.pid)
    below: set[int] = set()
    pending = [root]
    while pending:
        for pid in children.get(pending.pop(), ()):
            if pid not in below:
                below.add(pid)
                pending.append(pid)
    return below


def others(keep: frozenset[int]) -> set[int]:
    """The pids of everything but the first process and `keep`."""
    return {process.pid for process in snapshot()} - keep - {1, os.getpid()}


def only_the_first() -> bool:
    """Whether the box of this /proc has no process but its first one, or has none in a moment."""
    deadline = time.monotonic() + IDLE_PATIENCE
    while any(process.pid != 1 for process in snapshot()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0005)
    return True


def asleep(pid: int) -> bool:
    """Whether a process waits for something to do."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"S"
    except OSError:
        return False


def signal_each(pids: set[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def end_all(keep: frozenset[int] = frozenset()) -> None:
    """Called by the first process: kill everything but `keep`, and return when it is gone."""
    if keep:
        _end(lambda: others(keep))
        return
    signal_each({-1}, signal.SIGKILL)
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def end_tree() -> None:
    """Called by a process that adopts orphans: kill everything below it, and return when it is gone.

    Its own children are left as zombies for it to reap.
    """
    me = os.getpid()
    _end(lambda: descendants(me))


def end_children() -> None:
    """Called by a process that adopts orphans: kill its children and whatever they leave, and reap them all.

    Unlike `end_tree` it costs the same on a machine with many processes; what it ends must not fork without end.
    """
    while True:
        signal_each(children(), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def children() -> set[int]:
    """The pids of the children of this process."""
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children") as file:
            return {int(word) for word in file.read().split()}
    except OSError:  # a kernel without this file
        return descendants(me)


def _end(find: Callable[[], set[int]]) -> None:
    while True:
        stopped: set[int] = set()
        while found := find() - stopped:
            signal_each(found, signal.SIGSTOP)
            stopped |= found
        if not stopped:
            return
        signal_each(stopped, signal.SIGKILL)
        for pid in stopped:
            _await_end(pid)


def _await_end(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([handle], [], [])
    finally:
        os.close(handle)


def has_children() -> bool:
    """Whether any child lives, or waits to be reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def reap() -> dict[int, int]:
    """Collect the children that have ended, without waiting: pid -> exit code, 128 + n for a signal n."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        code = os.waitstatus_to_exitcode(status)
        ended[pid] = code if code >= 0 else 128 - code


def freeze() -> set[int]:
    """Called by the first process: stop everything, where there is no control group to freeze it with.

    Returns what it stopped, for `thaw`: what had been stopped before is not among it.
    """
    running = {process.pid for process in snapshot() if process.state not in "Tt"} - {1}
    stopped: set[int] = set()
    while found := running - stopped:
        signal_each(found, signal.SIGSTOP)
        stopped |= found
        running = {process.pid for process in snapshot() if process.state not in "Tt"} - {1}
    return stopped


def thaw(stopped: set[int]) -> None:
    signal_each(stopped, signal.SIGCONT)
