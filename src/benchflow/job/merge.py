"""Puts the results of several jobs into one folder, for what they share to be measured together.

Two jobs may have made the same measurement. Its rollouts are then further attempts: they take the numbers that have no
score yet, so that all of them count. Merging what is there already changes nothing, and nothing that the target still
has to do is forgotten. What a rollout wrote is copied, never moved.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.job.config import LIMITS, SHARED
from benchflow.job.lock import read_lock, write_lock
from benchflow.job.row import settle
from benchflow.job.store import RESULT, held, read_rows, settled
from benchflow.job.summary import JobResult, write_summary
from benchflow.rollout.store import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchflow.job.lock import JobLock, Key
    from benchflow.job.row import Row

_SETTINGS = SHARED - {"environment", *LIMITS} | {"agent", "model", "prompts", "scenes"}
"""What two jobs must agree in for a measurement of one to be described by the settings of the other."""


def merge_jobs(sources: Sequence[Path], target: Path) -> int:
    """Copy the scored rollouts of `sources` into `target`, which may be a job already; how many it then has.

    Raises ConfigError when one of them is not a job, when `target` is being worked on, or when two jobs have tasks of
    the same name that are not the same.
    """
    locks = [_lock(source) for source in sources]
    with held(target):
        lock = read_lock(target) or replace(locks[0], name=target.name, tasks={}, measurements=[])
        rows = {key: row for key, row in settle(read_rows(target)).items() if row.scored}
        for source, theirs in zip(sources, locks, strict=True):
            _check(lock, theirs, source)
            found = sorted(settle(read_rows(source)).items())
            for key, row in found:
                if row.scored and not (target / row.rollout_dir.name).exists():
                    place = _free(rows, key[0])
                    rows[place] = _copy(row, place, target)
            lock = _joined(lock, theirs, rows)
        write_lock(target, lock)
        kept = settled(target, lock)
        finished = all(key in rows for key in lock.keys)
        write_summary(lock, JobResult(target, "finished" if finished else "interrupted", kept, lock.total))
    return len(kept)


def _lock(job_dir: Path) -> JobLock:
    if lock := read_lock(job_dir):
        return lock
    raise ConfigError(f"{job_dir} is not a job: it has no job.json")


def _check(lock: JobLock, theirs: JobLock, source: Path) -> None:
    """A task of one name with two contents would be two tasks under one name."""
    changed = [
        name for name, task in theirs.tasks.items() if name in lock.tasks and lock.tasks[name].digest != task.digest
    ]
    if changed:
        raise ConfigError(f"{source}: other content of the same name: {', '.join(sorted(changed)[:5])}")


def _free(rows: Mapping[Key, Row], measurement: str) -> Key:
    attempt = 1
    while (measurement, attempt) in rows:
        attempt += 1
    return measurement, attempt


def _copy(row: Row, key: Key, target: Path) -> Row:
    """Copy one rollout under another number. Its result is written last, so that half a copy is not a rollout."""
    folder = target / row.rollout_dir.name
    partial = target / f".{folder.name}"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(row.rollout_dir, partial, symlinks=True)
    document = json.loads((partial / RESULT).read_bytes())
    document["labels"] = {**(document.get("labels") or {}), "attempt": key[1]}
    document["rollout_dir"] = str(folder)
    write_json(partial / RESULT, document)
    partial.rename(folder)
    return replace(row, rollout_dir=folder, attempt=key[1])


def _joined(lock: JobLock, theirs: JobLock, rows: Mapping[Key, Row]) -> JobLock:
    """Both together, each measurement with as many attempts as were scored, and not fewer than `lock` asks for.

    The settings stay those of `lock`. The casts of another job come after its own, which is how `resume` knows them.
    """
    shift = 0 if _same_settings(lock, theirs) else len(lock.casts)
    known = {one.id: one for one in lock.measurements}
    attempts = {one.id: one.attempts for one in lock.measurements}
    for measurement, attempt in rows:
        attempts[measurement] = max(attempt, attempts.get(measurement, 0))
    for one in theirs.measurements:
        known.setdefault(one.id, replace(one, cast=one.cast + shift))
    return replace(
        lock,
        casts=[*lock.casts, *theirs.casts] if shift else lock.casts,
        tasks={**theirs.tasks, **lock.tasks},
        measurements=[replace(one, attempts=attempts[one.id]) for one in known.values() if one.id in attempts],
    )


def _same_settings(lock: JobLock, theirs: JobLock) -> bool:
    """Whether `lock` describes what the other job measured; casts that were added to its own are not its own."""
    if lock.casts[: len(theirs.casts)] != theirs.casts:
        return False
    return all(lock.config.get(name) == theirs.config.get(name) for name in _SETTINGS)
