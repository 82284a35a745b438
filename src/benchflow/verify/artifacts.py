"""Artifacts: what is kept of a sandbox, and how a separate verifier gets to see it.

Collecting never fails a rollout: what cannot be had is written down in the manifest.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import PurePosixPath
from shutil import rmtree
from typing import TYPE_CHECKING, Literal

from benchflow.errors import SandboxError, SandboxGone
from benchflow.task.artifacts import Artifact
from benchflow.verify.environment import (
    OPEN_TO_ALL,
    PYTHON_GUARD,
    SCRATCH,
    Modules,
    bare_environment,
    guard_files,
    verifier_environment,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from benchflow.sandbox.base import Sandbox
    from benchflow.task.verifier import CollectHook

PUBLISHED = "/logs/artifacts"
"""The folder that is always collected, unless an entry names it."""

REMOVE_TIMEOUT = 60.0
"""Seconds that taking away what collect hooks were given may take."""


@dataclass(frozen=True, slots=True)
class Collected:
    """One line of manifest.json. `destination` is relative to the artifacts folder."""

    source: str
    destination: str
    type: Literal["file", "directory"]
    status: Literal["ok", "failed", "empty", "skipped"]
    service: str | None = None
    exclude: tuple[str, ...] | None = None


def place_of(source: str, workdir: str) -> str:
    """Where in a sandbox an artifact lies: what is not absolute is meant below the working folder."""
    return posixpath.join(workdir, source)


async def run_hooks(sandbox: Sandbox, hooks: Sequence[CollectHook]) -> list[str]:
    """Run the collect hooks; returns what went wrong, in words. A failing hook is noted, not fatal.

    They run where the agent has worked, often as root: in a verifier's environment, but with the user's own home.
    """
    if not hooks:
        return []
    faults = []
    await sandbox.put(guard_files(Modules(), beside_agent=True), PYTHON_GUARD)
    for hook in hooks:
        ended = await sandbox.exec(hook.command, user=hook.user, env=_environment(sandbox), timeout=hook.timeout_sec)
        if not ended.ok:
            how = "timed out" if ended.timed_out else f"exited {ended.exit_code}"
            faults.append(f"the collect hook {hook.command!r} {how}")
    await sandbox.exec(["/bin/rm", "-rf", SCRATCH], user=0, cwd="/", timeout=REMOVE_TIMEOUT)
    return faults


def _environment(sandbox: Sandbox) -> dict[str, str]:
    ours = verifier_environment(sandbox.env, writable=(sandbox.workdir, *OPEN_TO_ALL))
    return {name: value for name, value in ours.items() if name not in bare_environment()}


async def collect(sandbox: Sandbox, artifacts: Sequence[Artifact], folder: Path) -> list[Collected]:
    """Copy the artifacts below `folder`; of two entries that overlap the first wins."""
    entries = list(artifacts)
    if not any(entry.source.rstrip("/") == PUBLISHED for entry in entries):
        entries.insert(0, Artifact(source=PUBLISHED))
    manifest: list[Collected] = []
    for entry in entries:
        claimed = [PurePosixPath(done.destination) for done in manifest if done.status == "ok"]
        manifest.append(await _collect_one(sandbox, entry, folder, claimed))
    return manifest


async def _collect_one(sandbox: Sandbox, entry: Artifact, folder: Path, claimed: list[PurePosixPath]) -> Collected:
    place = PurePosixPath(entry.claims or "root")
    row = Collected(entry.source, str(place), "file", "failed", entry.service, entry.exclude or None)
    if any(place.is_relative_to(other) or other.is_relative_to(place) for other in claimed):
        return replace(row, status="skipped")
    target = folder / place
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        await sandbox.get(place_of(entry.source, sandbox.workdir), target)
    except SandboxGone:
        raise
    except (FileNotFoundError, SandboxError):
        return replace(row, status="empty" if entry.source == PUBLISHED else "failed")
    if target.is_dir():
        _leave_out(target, entry.exclude)
        return replace(row, type="directory", status="ok" if any(target.iterdir()) else "empty")
    return replace(row, status="ok")


def _leave_out(folder: Path, patterns: Sequence[str]) -> None:
    """Remove what matches an exclude pattern, by name or by path below the folder."""
    for path in sorted(folder.rglob("*"), reverse=True) if patterns else ():
        relative = path.relative_to(folder).as_posix()
        if any(fnmatch(path.name, pattern) or fnmatch(relative, pattern) for pattern in patterns):
            if path.is_dir() and not path.is_symlink():
                rmtree(path)
            else:
                path.unlink(missing_ok=True)


async def restore(sandbox: Sandbox, manifest: Iterable[Collected], folder: Path) -> None:
    """Put collected artifacts where they came from, in another sandbox."""
    for row in manifest:
        if row.status == "ok":
            await sandbox.put(folder / row.destination, place_of(row.source, sandbox.workdir))
