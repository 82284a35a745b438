"""A container's processes and files as this machine's kernel shows them: for root, with an engine on this machine.

The processes of a container are those in the pid namespace of its first one. Everything an exec started is known by
the mark in its environment, by descent from a marked process, or by sharing a session with one; the init that every
exec runs under adopts orphans, so descent holds while the command lives. A process is signalled through a descriptor
of it and only after it was seen in the container's namespace, so a recycled number is never hit. Everything here
blocks; call it from a thread.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.sandbox.docker.rooted import Rooted
from benchflow.sandbox.local.guest import restrain
from benchflow.sandbox.procfs import EXITING, environment, read_proc, stat_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

KILL_TIMEOUT = 30.0
"""Seconds that killing a set of processes, which may go on making new ones, is tried."""

KILL_STEP = 0.005
"""Seconds between two looks at whether killed processes are gone."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One process, by the host's numbers."""

    pid: int
    parent: int
    session: int
    started: int


class Near:
    """One running container. Keeps one descriptor, of its first process, until `close`."""

    def __init__(self, container: str, first: int) -> None:
        """Raises OSError when `first` is not a process of that container which we may look into."""
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False
        self._pidfd = os.pidfd_open(first)
        try:
            self.first = first
            if container not in Path(f"/proc/{first}/cgroup").read_text(encoding="utf-8", errors="replace"):
                raise ProcessLookupError(f"{first} is not a process of the container")
            if Path(f"/proc/{first}/uid_map").read_text(encoding="ascii").split() != ["0", "0", "4294967295"]:
                raise PermissionError("the container has users of its own")
            self._namespace = _namespace(first)
            with self.files() as files:
                files.probe()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Refuse further calls; the descriptor goes with the last one that is under way. Idempotent."""
        with self._lock:
            self._closed = True
            self._drop()

    def _drop(self) -> None:
        if self._closed and not self._users and self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Around every call. Raises ProcessLookupError when the container is gone."""
        with self._lock:
            if self._closed:
                raise ProcessLookupError("the container is gone")
            self._users += 1
        try:
            self._check_alive()
            yield
        finally:
            with self._lock:
                self._users -= 1
                self._drop()

    def _opened(self, name: str, flags: int) -> int:
        """A descriptor of something in the first process's folder of /proc. Raises ProcessLookupError."""
        try:
            descriptor = os.open(f"/proc/{self.first}/{name}", flags | os.O_CLOEXEC)
        except OSError:
            raise ProcessLookupError("the container is gone") from None
        try:
            # Only if it lives now was the number still the container's when that was opened.
            self._check_alive()
        except ProcessLookupError:
            os.close(descriptor)
            raise
        return descriptor

    def _check_alive(self) -> None:
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        if poller.poll(0):
            raise ProcessLookupError("the container is gone")

    def lives(self) -> bool:
        """Whether the container's first process is there and not on its way out: it ends after all the others."""
        try:
            with self._in_use():
                return not int(stat_fields(self.first)[6]) & EXITING
        except (OSError, IndexError):
            return False

    @contextmanager
    def files(self, halted: Callable[[], bool] = lambda: False) -> Iterator[Rooted]:
        """The container's files. Raises ProcessLookupError when it is gone."""
        with self._in_use():
            root = self._opened("root", os.O_PATH | os.O_DIRECTORY)
            try:
                yield Rooted(root, halted)
            finally:
                os.close(root)

    def mount_points(self) -> frozenset[str]:
        """Where the engine mounted something into the container. Raises ProcessLookupError."""
        with self._in_use():
            descriptor = self._opened("mountinfo", os.O_RDONLY)
            with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
                return frozenset(line.split(" ")[4] for line in file)

    def net_namespace(self) -> int:
        """A descriptor of the container's network, owned by the caller. Raises ProcessLookupError."""
        with self._in_use():
            return self._opened("ns/net", os.O_RDONLY)

    def kill_marked(self, mark: str) -> None:
        """Kill everything that the exec with this mark started. Raises TimeoutError."""
        with self._in_use():
            self._kill(lambda seen: _family(seen, {pid for pid in seen if _has_mark(pid, mark)}))

    def kill_all(self, keep: Collection[int]) -> None:
        """Kill everything but the container's own two processes and those in `keep`, by the numbers inside.

        Raises TimeoutError.
        """

        def doomed(seen: dict[int, Seen]) -> set[int]:
            own = _own(seen, self.first)
            return {pid for pid in seen if pid not in own and not (keep and _inner_pid(pid) in keep)}

        with self._in_use():
            self._kill(doomed)
            self._await_reaped()

    @contextmanager
    def restrained(self) -> Iterator[Callable[[], None]]:
        """See `Sandbox.restrained`. All of it must happen in one thread, which ends then."""
        with (
            self._in_use(),
            restrain.restrained(lambda: set(self._snapshot()), lambda pid: self._signal(pid, signal.SIGKILL)) as tend,
        ):
            yield tend

    def signal_command(self, number: int, pid: int, *, adopted: bool) -> None:
        """Send a signal to the process `pid`, or to the command below it when `pid` is an exec's init."""
        with self._in_use():
            below = [process for process in self._snapshot().values() if process.parent == pid]
            if adopted and below:
                self._signal(min(below, key=lambda process: (process.started, process.pid)).pid, number)
            elif not adopted:
                self._signal(pid, number)

    def input_abandoned(self, pid: int) -> bool:
        """Whether nobody but the process `pid`, an exec's init, still holds the reading end of its input."""
        try:
            pipe = os.readlink(f"/proc/{pid}/fd/0")  # noqa: PTH115  not a path
        except OSError:
            return False
        others = self._snapshot()
        if pid not in others or not pipe.startswith(("pipe:", "socket:")):
            return False
        return not any(_holds(other, pipe) for other in others if other != pid)

    def _kill(self, choose: Callable[[dict[int, Seen]], set[int]]) -> None:
        """Stop what is chosen until nothing new appears, then kill it, then look again."""
        deadline = time.monotonic() + KILL_TIMEOUT
        stopped: set[int] = set()
        while doomed := choose(self._snapshot()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes survived {KILL_TIMEOUT:g} s of killing: {sorted(doomed)}")
            fresh = doomed - stopped
            for pid in fresh or doomed:
                self._signal(pid, signal.SIGSTOP if fresh else signal.SIGKILL)
            stopped |= fresh
            if not fresh:
                time.sleep(KILL_STEP)

    def _await_reaped(self) -> None:
        """Wait until the container's first process has collected what was left to it: until then the dead count against
        the limit on processes."""
        deadline = time.monotonic() + KILL_TIMEOUT
        while time.monotonic() < deadline and any(self._waits_for_first(pid) for pid in _pids()):
            time.sleep(KILL_STEP)

    def _waits_for_first(self, pid: int) -> bool:
        with suppress(OSError, IndexError):
            fields = stat_fields(pid)
            return fields[0] == b"Z" and int(fields[1]) == self.first
        return False

    def _signal(self, pid: int, number: int) -> None:
        with suppress(OSError):
            descriptor = os.pidfd_open(pid)
            try:
                if _namespace(pid) == self._namespace:
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)

    def _snapshot(self) -> dict[int, Seen]:
        """Every live process of the container; those that only wait to be reaped are not live."""
        found = {}
        for pid in _pids():
            with suppress(OSError, ValueError):
                if _namespace(pid) == self._namespace and (seen := _look(pid)):
                    found[seen.pid] = seen
        return found


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  scanned often


def _namespace(pid: int) -> int:
    return os.stat(f"/proc/{pid}/ns/pid").st_ino  # noqa: PTH116  scanned often


def _look(pid: int) -> Seen | None:
    fields = stat_fields(pid)
    if len(fields) < 20 or fields[0] in {b"Z", b"X"}:
        return None
    return Seen(pid, parent=int(fields[1]), session=int(fields[3]), started=int(fields[19]))


def _has_mark(pid: int, mark: str) -> bool:
    """Whether a process was started with this variable."""
    with suppress(OSError):
        return mark.encode() in environment(pid).split(b"\0")
    return False


def _inner_pid(pid: int) -> int:
    """The number of a process inside its own namespace."""
    with suppress(OSError, ValueError):
        for line in read_proc(f"/proc/{pid}/status").splitlines():
            if line.startswith(b"NSpid:"):
                return int(line.split()[-1])
    return -1


def _holds(pid: int, link: str) -> bool:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208  only the names are wanted
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{name}") == link:  # noqa: PTH115  not a path
                    return True
    return False


def _family(seen: dict[int, Seen], marked: set[int]) -> set[int]:
    """The marked processes, those that share a session with one, and everything that descends from these."""
    sessions = {seen[pid].session for pid in marked}
    family = {pid for pid, process in seen.items() if pid in marked or process.session in sessions}
    while more := {pid for pid, process in seen.items() if process.parent in family} - family:
        family |= more
    return family


def _own(seen: dict[int, Seen], first: int) -> set[int]:
    """The container's own processes: its init, the oldest other one (which keeps it alive), and all below that.

    Where an agent has replaced the shell there may be more of these than one, and killed they come back for ever.
    """
    others = [process for pid, process in seen.items() if pid != first]
    if not others:
        return {first}
    own = {min(others, key=lambda process: (process.started, process.pid)).pid}
    while more := {pid for pid, process in seen.items() if process.parent in own} - own:
        own |= more
    return {first, *own}
