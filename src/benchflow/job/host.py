"""What the host has left, and whether one more rollout fits.

Sandboxes are limited, but what they are promised together may be more than there is. A rollout is admitted while the
memory that is free now holds it together with those that were admitted a moment ago and have not taken theirs yet, and
while the processors keep up. One rollout always fits: a job never waits for room that nobody will give back.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.job.retry import DISK_FLOOR_MB, disk_full

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from benchflow.job.retry import Halt
    from benchflow.job.scheduler import Work

RESERVE_MB = 512
"""Memory that is left to everything else on the machine."""

USUAL_MB = 256
"""What a rollout is taken to need when its task sets no limit."""

SETTLE_SECONDS = 20.0
"""After so long a rollout has taken the memory it needs, and is counted by what is free."""

FRESH_SECONDS = 0.1
"""For so long what was seen of the host is taken to be true."""

LOAD_PER_CORE = 64.0
"""Processes that wait for each processor, on average over a minute, from which nothing more is started."""

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Host:
    """Memory (None where it cannot be told) and disk that are free now, and how many processes want each processor."""

    memory_mb: int | None
    disk_mb: int
    load: float = 0.0


def look(folder: Path) -> Host:
    """What is free: memory of this machine or of the container we are in, and disk where `folder` is."""
    known = [free for free in (_machine_memory(), _container_memory()) if free is not None]
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return Host(min(known, default=None), shutil.disk_usage(folder).free >> 20, load)


def fits(host: Host, need_mb: int | None, unsettled_mb: int) -> bool:
    """Whether a rollout that needs so much has room beside those that have not taken theirs yet."""
    if host.load > LOAD_PER_CORE:
        return False
    return host.memory_mb is None or host.memory_mb - unsettled_mb - RESERVE_MB >= (need_mb or USUAL_MB)


class Admission:
    """Remembers who was let in lately. `look` is how the host is asked, `ceiling` what else forbids to go on."""

    def __init__(
        self,
        look: Callable[[], Host],
        clock: Callable[[], float] = time.monotonic,
        ceiling: Callable[[], Halt | None] = lambda: None,
    ) -> None:
        self._look = look
        self._clock = clock
        self._ceiling = ceiling
        self._recent: dict[Work, float] = {}
        self._seen: tuple[float, Host] | None = None

    @property
    def disk_mb(self) -> int:
        return self._host().disk_mb

    def problem(self) -> Halt | None:
        """Why nothing more can be started at all."""
        free = self.disk_mb
        return disk_full(free) if free < DISK_FLOOR_MB else self._ceiling()

    def admit(self, work: Work, running: Collection[Work]) -> bool:
        """Whether a rollout may start beside those that run; if so it is counted. One that is alone always may.

        One that has ended needs nothing any more, however short its life was: what it had is free again by now.
        """
        since, here = self._clock() - SETTLE_SECONDS, set(running)
        self._recent = {one: begun for one, begun in self._recent.items() if begun > since and one in here}
        if running and not fits(self._host(), work.memory_mb, sum(one.memory_mb or USUAL_MB for one in self._recent)):
            return False
        self._recent[work] = self._clock()
        return True

    def _host(self) -> Host:
        now = self._clock()
        if self._seen is None or now - self._seen[0] >= FRESH_SECONDS:
            self._seen = now, self._look()
        return self._seen[1]


def _machine_memory() -> int | None:
    try:
        lines = MEMINFO.read_text("ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("MemAvailable:")), None)


def _container_memory() -> int | None:
    try:
        limit = (CGROUP / "memory.max").read_text("ascii").strip()
        used = (CGROUP / "memory.current").read_text("ascii")
        return None if limit == "max" else (int(limit) - int(used)) >> 20
    except (OSError, ValueError):
        return None
