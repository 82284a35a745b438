"""What is on the disk while boxes run: one small record per box, one folder per writable layer.

Both carry the process that owns them (its pid and when it started, so that a pid used again is not mistaken for
it). Whatever carries a dead process was left behind, and is found here by `bench sandbox list` and by reaping.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import select
import signal
import struct
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.sandbox.local.cgroups import thaw

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE_VARIABLE = "BENCHFLOW_LOCAL_DIR"
"""Where running boxes keep their files; by default the cache folder of the user. Must be on a disk that overlayfs can
write to."""

_GET_FLAGS, _SET_FLAGS, _TOP_OF_TREE = 0x80086601, 0x40086602, 0x20000

END_TIMEOUT = 10.0
"""Seconds that a killed box may take to end."""


def default_root() -> Path:
    if chosen := os.environ.get(STATE_VARIABLE):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchflow" / "local"


def started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


@dataclass(frozen=True, slots=True)
class Process:
    """A process, told apart from any later one with its pid."""

    pid: int
    start: int

    @classmethod
    def current(cls) -> Process:
        return cls(os.getpid(), started(os.getpid()) or 0)

    @property
    def alive(self) -> bool:
        return started(self.pid) == self.start

    @property
    def tag(self) -> str:
        """Part of the name of whatever this process owns."""
        return f"{self.pid}-{self.start}"

    @classmethod
    def from_tag(cls, name: str) -> Process | None:
        """The process at the start of a name that begins with a tag."""
        parts = name.split("-")
        if len(parts) < 2 or not parts[0].isdigit() or not parts[1].isdigit():
            return None
        return cls(int(parts[0]), int(parts[1]))


@dataclass(frozen=True, slots=True)
class Record:
    """One running box, as its owner wrote it down."""

    id: str
    job: str
    rollout: str
    created: float
    owner: Process
    first: Process
    cgroups: tuple[str, ...]


def end(record: Record) -> None:
    """End the first process of a box, and with it the box, if it is still there. Blocks until it is gone.

    Raises TimeoutError after `END_TIMEOUT`.
    """
    try:
        handle = os.pidfd_open(record.first.pid)
    except ProcessLookupError:
        return
    try:
        if not record.first.alive:
            return
        for group in record.cgroups:
            with suppress(OSError):
                thaw(group)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        if not select.select([handle], [], [], END_TIMEOUT)[0]:
            raise TimeoutError(f"process {record.first.pid} does not end")
    finally:
        os.close(handle)


def _spread(folder: Path) -> None:
    """Ask the file system to place what is made in a folder far apart, as it does at the top of a disk.

    Boxes come and go, and ext4 without a journal does not use the place of what was just removed again: next to each
    other they would make it search longer and longer.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = struct.unpack("L", fcntl.ioctl(handle, _GET_FLAGS, bytes(struct.calcsize("L"))))[0]
        if not flags & _TOP_OF_TREE:
            fcntl.ioctl(handle, _SET_FLAGS, struct.pack("L", flags | _TOP_OF_TREE))
    except OSError:  # a file system that knows no such thing
        return
    finally:
        os.close(handle)


class State:
    """The folder that all engines of one user share."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._records = root / "boxes"
        self._homes = root / "uppers"
        self._me = Process.current()
        self._numbers = itertools.count()

    @property
    def owner(self) -> Process:
        return self._me

    def prepare(self) -> None:
        """Make the folders. Raises OSError."""
        self._records.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._homes.mkdir(mode=0o700, exist_ok=True)
        _spread(self._homes)

    def new_home(self) -> Path:
        """The path of a new folder for a writable layer; not made yet."""
        return self._homes / f"{self._me.tag}-{id(self):x}-{next(self._numbers)}"

    def write(self, record: Record) -> None:
        path = self._path(record.id)
        path.write_text(json.dumps(asdict(record)), encoding="utf-8")

    def remove(self, box: str) -> None:
        self._path(box).unlink(missing_ok=True)

    def records(self) -> Iterator[Record]:
        """Every record that can be read."""
        for path in sorted(self._records.glob("*.json")):
            with suppress(OSError, ValueError, TypeError, KeyError):
                data = json.loads(path.read_text(encoding="utf-8"))
                data["owner"], data["first"] = Process(**data["owner"]), Process(**data["first"])
                yield Record(**{**data, "cgroups": tuple(data["cgroups"])})

    def stray_homes(self, older_than: float = 0.0) -> list[Path]:
        """Folders of writable layers whose owner is dead, made at least so many seconds ago."""
        latest = time.time() - older_than
        homes = ((path, Process.from_tag(path.name)) for path in self._homes.glob("*"))
        return [
            path for path, owner in homes if owner is not None and not owner.alive and path.stat().st_ctime <= latest
        ]

    def _path(self, box: str) -> Path:
        return self._records / f"{box}.json"
