"""Control groups: which of them this process may use, and the limits of a box as files to write.

Version 1, version 2 and both side by side. A box gets one group in every hierarchy that it needs, made below the
group of this process where that is allowed, else below the nearest one above where it is. What cannot be enforced
is not in `limits`, and so not in the capabilities of the backend.
"""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchflow.sandbox.local.guest import cgroups as guest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchflow.sandbox.base import Limits
    from benchflow.sandbox.local.guest.messages import CgroupRequest

FREEZE_TIMEOUT = 10.0
"""Seconds that the processes of a box may take to come to a halt."""

CPU_PERIOD = 100_000
"""Microseconds over which processor time is shared out."""

PREFIX = "benchflow-"
"""Every group of ours is called so; the process that owns it and the box follow."""

Limit = Literal["cpus", "memory", "pids"]

_CONTROLLERS: Mapping[Limit, str] = {"cpus": "cpu", "memory": "memory", "pids": "pids"}


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Where this process is in each hierarchy: the unified one, and those of version 1 by controller."""

    unified: Path | None = None
    unified_root: Path | None = None
    old: Mapping[str, Path] = field(default_factory=dict)


def locate(mountinfo: str, membership: str) -> Hierarchies:
    """Read `Hierarchies` off the texts of /proc/self/mountinfo and /proc/self/cgroup."""
    paths: dict[str, str] = {}
    for line in membership.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for name in names.split(",") if number != "0" else [""]:
            paths[name] = path
    unified = unified_root = None
    old: dict[str, Path] = {}
    for line in mountinfo.splitlines():
        head, _, tail = line.partition(" - ")
        kind, _, options = (*tail.split(" ", 2), "", "")[:3]
        shown, point = head.split(" ")[3:5]
        if kind == "cgroup2" and "" in paths:
            unified_root = Path(point)
            unified = _below(point, shown, paths[""])
        elif kind == "cgroup":
            for name in options.split(","):
                if name in paths:
                    old[name] = _below(point, shown, paths[name])
    return Hierarchies(unified, unified_root, old)


def _below(point: str, shown: str, path: str) -> Path:
    """Where the group `path` is, in a mount at `point` that shows the hierarchy from `shown` on."""
    inside = path if shown == "/" else path.removeprefix(shown)
    return Path(point) / inside.lstrip("/")


class Cgroups:
    """The groups that boxes of this process may have."""

    def __init__(self, where: Hierarchies) -> None:
        self._unified, controllers = _usable_unified(where)
        self._limits: dict[Limit, Path] = {}
        for limit, controller in _CONTROLLERS.items():
            if controller in controllers and self._unified is not None:
                self._limits[limit] = self._unified
            elif controller in where.old and _can_make(where.old[controller]):
                self._limits[limit] = where.old[controller]
        self._freezer = None
        freezer = where.old.get("freezer")
        if not controllers and freezer is not None and _can_make(freezer):
            # Where the unified hierarchy would only be there to freeze: moving into an old group is much cheaper.
            self._unified, self._freezer = None, freezer

    @classmethod
    def here(cls) -> Cgroups:
        """What this process may use; tried, not guessed. Blocks for a moment."""
        return cls(locate(_text("/proc/self/mountinfo"), _text("/proc/self/cgroup")))

    @property
    def limits(self) -> frozenset[Limit]:
        return frozenset(self._limits)

    @property
    def freezes(self) -> bool:
        return self._unified is not None or self._freezer is not None

    def groups(self) -> list[Path]:
        """Every group of ours that there is, whoever made it."""
        parents = {self._unified, self._freezer, *self._limits.values()} - {None}
        return [path for parent in parents if parent is not None for path in parent.glob(f"{PREFIX}*")]

    def plan(self, name: str, limits: Limits) -> list[CgroupRequest]:
        """The groups of a box called `name`; the first one is the one to freeze it by, where there is one."""
        settings: dict[Path, dict[str, str]] = {}
        for parent in (self._unified, self._freezer):
            if parent is not None:
                settings[parent] = {}
        for limit, parent in self._limits.items():
            values = limit_files(limit, limits, unified=parent == self._unified)
            if values:
                settings.setdefault(parent, {}).update(values)
        return [{"path": f"{parent}/{PREFIX}{name}", "settings": values} for parent, values in settings.items()]


def limit_files(limit: Limit, limits: Limits, *, unified: bool) -> dict[str, str]:
    """The files of a group, and what goes into them, in that order."""
    if limit == "pids" and limits.pids is not None:
        return {"pids.max": str(limits.pids)}
    if limit == "cpus" and limits.cpus is not None:
        quota = max(1000, round(limits.cpus * CPU_PERIOD))
        if unified:
            return {"cpu.max": f"{quota} {CPU_PERIOD}"}
        return {"cpu.cfs_period_us": str(CPU_PERIOD), "cpu.cfs_quota_us": str(quota)}
    if limit == "memory" and limits.memory_mb is not None:
        size = str(limits.memory_mb << 20)
        if unified:
            return {"memory.max": size, "memory.swap.max": "0"}
        return {"memory.limit_in_bytes": size, "memory.memsw.limit_in_bytes": size}
    return {}


def _usable_unified(where: Hierarchies) -> tuple[Path | None, frozenset[str]]:
    """The nearest unified group in which boxes can have groups with all controllers there are, and those controllers.

    A group that has processes of its own cannot pass controllers on, so this often is a group further up.
    """
    best: tuple[Path | None, frozenset[str]] = (None, frozenset())
    for group in _upwards(where):
        if not _can_make(group):
            continue
        wanted = _words(group / "cgroup.controllers") & set(_CONTROLLERS.values())
        missing = wanted - _words(group / "cgroup.subtree_control")
        if missing:
            with suppress(OSError):
                guest.write(str(group / "cgroup.subtree_control"), " ".join(f"+{name}" for name in missing))
        passed_on = wanted & _words(group / "cgroup.subtree_control")
        if best[0] is None or passed_on > best[1]:
            best = (group, frozenset(passed_on))
        if passed_on == wanted:
            break
    return best


def _upwards(where: Hierarchies) -> Iterable[Path]:
    group, top = where.unified, where.unified_root
    if group is None or top is None:
        return
    yield group
    while group != top and top in group.parents:
        group = group.parent
        yield group


def _can_make(parent: Path) -> bool:
    """Whether a group can be made below `parent` and this process be moved there."""
    trial = parent / f"{PREFIX}trial-{os.getpid()}"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return False
    return os.access(parent / "cgroup.procs", os.W_OK)


def _words(path: Path) -> set[str]:
    try:
        return set(path.read_text(encoding="ascii").split())
    except OSError:
        return set()


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="surrogateescape")


def freeze(group: str) -> None:
    """Bring every process of a group to a halt. Blocks until it is so; raises TimeoutError after `FREEZE_TIMEOUT`."""
    deadline = time.monotonic() + FREEZE_TIMEOUT
    path = Path(group)
    if (path / "cgroup.freeze").exists():
        with (path / "cgroup.events").open("rb") as events:
            poll = select.poll()
            poll.register(events, select.POLLPRI)
            guest.write(f"{group}/cgroup.freeze", "1")
            while b"frozen 1" not in os.pread(events.fileno(), 4096, 0):
                poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
                _check(deadline, group)
        return
    guest.write(f"{group}/freezer.state", "FROZEN")
    while _words(path / "freezer.state") != {"FROZEN"}:
        _check(deadline, group)
        time.sleep(0.001)  # this version has no event to wait for


def thaw(group: str) -> None:
    if Path(group, "cgroup.freeze").exists():
        guest.write(f"{group}/cgroup.freeze", "0")
    elif Path(group, "freezer.state").exists():
        guest.write(f"{group}/freezer.state", "THAWED")


def _check(deadline: float, group: str) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"processes in {group} did not come to a halt within {FREEZE_TIMEOUT:g} s")
