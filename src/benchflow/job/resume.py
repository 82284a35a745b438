"""What is left of a job: its plan minus what is finished, by identity.

A rollout is finished when it has a score; one that was lost is done again. Only what is left is looked at, so that
resuming a job of thousands that are nearly done is quick.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.job.lock import config_of, read_lock
from benchflow.job.plan import Problems, measure, rollout_config
from benchflow.job.row import settle
from benchflow.job.scheduler import Work
from benchflow.job.store import read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchflow.job.config import JobConfig
    from benchflow.job.lock import JobLock, Key, LockedMeasurement
    from benchflow.job.plan import Measurement
    from benchflow.job.row import Row


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a job will do. `measurements` are ready to run, at least those of which something is left."""

    lock: JobLock
    config: JobConfig
    measurements: Mapping[str, Measurement]
    ended: Mapping[Key, Row]

    @property
    def to_do(self) -> list[Key]:
        return remaining(self.lock, self.ended)


def remaining(lock: JobLock, ended: Mapping[Key, Row]) -> list[Key]:
    """The rollouts without a score, in the job's order."""
    return [key for key in lock.keys if key not in ended or not ended[key].scored]


def work_of(plan: JobPlan, ended: Mapping[Key, Row]) -> list[Work]:
    """What is left, ready for the scheduler; a rollout that was lost goes on counting its tries."""
    return [
        Work(
            key,
            model=plan.measurements[key[0]].model,
            memory_mb=plan.measurements[key[0]].memory_mb,
            tried=ended[key].tried + 1 if key in ended else 1,
        )
        for key in remaining(plan.lock, ended)
    ]


async def resume_plan(job_dir: Path, given: Mapping[str, str]) -> JobPlan:
    """The plan of a job that began earlier, exactly as it was. `given` are variables that the job does not keep.

    Raises ConfigError when `job_dir` is no job, and with every problem when what is left cannot run as it was planned.
    """
    lock = read_lock(job_dir)
    if lock is None:
        raise ConfigError(f"{job_dir} is not a job that can be resumed: it has no job.json")
    config = config_of(lock.config, {**os.environ, **given}, str(job_dir))
    ended = settle(read_rows(job_dir))
    left = {measurement for measurement, _ in remaining(lock, ended)}
    problems = Problems(len(lock.tasks))
    measurements: dict[str, Measurement] = {}
    casts = config.casts
    for locked in lock.measurements:
        if locked.id in left:
            with problems.of(locked.task):
                folder = Path(lock.tasks[locked.task].path)
                asked = rollout_config(config, casts[locked.cast], folder, lock.sandbox)
                measurements[locked.id] = _same(await measure(asked, lock.reason), locked, lock)
    problems.refuse()
    return JobPlan(lock, config, measurements, ended)


def _same(found: Measurement, locked: LockedMeasurement, lock: JobLock) -> Measurement:
    """Raises ConfigError when it is not what was planned."""
    if found.id == locked.id:
        return found
    task = lock.tasks[locked.task]
    what = f"the task in {task.path}" if found.digest != task.digest else f"agent {locked.agent}"
    raise ConfigError(
        f"{locked.task}: {what} has changed since the job began",
        hint="restore it, or run `bench eval create` with the same --job-name to measure it as it is now",
    )
