"""What is left of a job: its plan minus what is finished, by identity.

A rollout is finished when it has a score; one that was lost is done again. Only what is left is looked at, so that
resuming a job of thousands that are nearly done is quick.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.job.lock import config_of, read_lock
from benchflow.job.row import settle
from benchflow.job.scheduler import Work
from benchflow.job.store import read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchflow.job.config import JobConfig
    from benchflow.job.lock import JobLock, Key, LockedMeasurement
    from benchflow.job.plan import Measurement
    from benchflow.job.regrade import Regrades
    from benchflow.job.row import Row
    from benchflow.rollout.scene import Scene


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a job will do. `measurements` are ready to run, at least those of which something is left.

    With `regrades` no agent is run: these are scored again, and that is all.
    """

    lock: JobLock
    config: JobConfig
    measurements: Mapping[str, Measurement] = field(repr=False)
    ended: Mapping[Key, Row] = field(repr=False)
    regrades: Regrades | None = None

    @property
    def to_do(self) -> list[Key]:
        return list(self.regrades.rows) if self.regrades else remaining(self.lock, self.ended)


def remaining(lock: JobLock, ended: Mapping[Key, Row]) -> list[Key]:
    """The rollouts without a score, and those that a smaller budget than now cut off, in the job's order."""
    budgets = {"cost": lock.config.get("max_cost"), "tokens": lock.config.get("max_tokens")}
    return [key for key in lock.keys if key not in ended or not ended[key].scored or _has_more(ended[key], budgets)]


def _has_more(row: Row, budgets: Mapping[str, float | None]) -> bool:
    """Whether its own budget cut it off, and it would now have a larger one."""
    cut = row.limit
    if not cut or cut["kind"] not in budgets:
        return False
    now = budgets[cut["kind"]]
    return now is None or now > cut["limit"]


def work_of(plan: JobPlan, ended: Mapping[Key, Row]) -> list[Work]:
    """What is left, ready for the scheduler; a rollout that was lost goes on counting its tries."""
    return [
        Work(
            key,
            model=plan.measurements[key[0]].model,
            memory_mb=plan.measurements[key[0]].memory_mb,
            tried=ended[key].tried + 1 if key in ended else 1,
        )
        for key in (plan.regrades.rows if plan.regrades else remaining(plan.lock, ended))
    ]


async def resume_plan(job_dir: Path, given: Mapping[str, str], limits: Mapping[str, float] | None = None) -> JobPlan:
    """The plan of a job that began earlier, exactly as it was, but for `limits` (see `config.LIMITS`).

    `given` are variables that the job does not keep. Raises ConfigError when `job_dir` is no job, and with every
    problem when what is left cannot run as it was planned.
    """
    lock, config = _read(job_dir, given, limits)
    refuse_unfinished_regrade(lock, job_dir)
    ended = settle(read_rows(job_dir))
    left = {measurement for measurement, _ in remaining(lock, ended)}
    if not left:
        return JobPlan(lock, config, {}, ended)
    # Agents, tasks and sandboxes take most of a second to import, which a job that is finished need not pay.
    from benchflow.job.plan import Problems, measure, rollout_config

    problems = Problems(len(lock.tasks))
    measurements: dict[str, Measurement] = {}
    contents: dict[Path, Mapping[str, str]] = {}
    casts = config.casts
    for locked in lock.measurements:
        if locked.id in left:
            with problems.of(locked.task):
                folder = Path(lock.tasks[locked.task].path)
                asked = rollout_config(config, _cast(locked, casts), folder, lock.sandbox)
                measurements[locked.id] = _same(await measure(asked, lock.reason, contents), locked, lock)
    problems.refuse()
    return JobPlan(lock, config, measurements, ended)


async def regrade_plan(job_dir: Path, given: Mapping[str, str], limits: Mapping[str, float] | None = None) -> JobPlan:
    """The plan of scoring a job's rollouts again with the tasks' verifiers as they are now. No credential is needed.

    Raises ConfigError when `job_dir` is no job, when nothing can be scored again, and with every problem.
    """
    from benchflow.job.plan import Problems, measure, rollout_config
    from benchflow.job.regrade import choose, relocked, same_performance
    from benchflow.rollout.regrade import idle_cast

    lock, config = _read(job_dir, given, limits)
    problems = Problems(len(lock.tasks))
    found: dict[str, Measurement] = {}
    contents: dict[Path, Mapping[str, str]] = {}
    casts = config.casts
    for locked in lock.measurements:
        with problems.of(locked.task):
            folder = Path(lock.tasks[locked.task].path)
            asked = rollout_config(config, _cast(locked, casts), folder, lock.sandbox)
            now = await measure(asked, lock.reason, contents, cast=idle_cast)
            found[locked.id] = same_performance(now, locked)
    problems.refuse()
    lock = relocked(lock, found)
    rows = list(read_rows(job_dir))
    measurements = {one.id: one for one in found.values()}
    return JobPlan(lock, config, measurements, settle(rows), choose(lock, measurements, rows))


def refuse_unfinished_regrade(lock: JobLock, job_dir: Path) -> None:
    """Raises ConfigError when rollouts are waiting to be scored again, which running agents would make pointless."""
    if lock.regrading:
        raise ConfigError(
            f"{job_dir}: grading it again was interrupted",
            hint="finish that first, with --regrade, or choose another --job-name",
        )


def _read(
    job_dir: Path, given: Mapping[str, str], limits: Mapping[str, float] | None = None
) -> tuple[JobLock, JobConfig]:
    lock = read_lock(job_dir)
    if lock is None:
        raise ConfigError(f"{job_dir} is not a job that can be resumed: it has no job.json")
    lock = replace(lock, config={**lock.config, **(limits or {})})
    return lock, config_of(lock.config, {**os.environ, **given}, str(job_dir))


def _cast(locked: LockedMeasurement, casts: Sequence[Sequence[Scene]]) -> Sequence[Scene]:
    """Who plays it. Raises ConfigError when `casts` do not say, because it was merged from a job with other ones."""
    if locked.cast < len(casts):
        return casts[locked.cast]
    raise ConfigError(
        f"{locked.task} with {locked.agent}: was merged from a job with other settings, which are not kept here",
        hint="do it in the job it comes from and merge into a new folder, or use `bench eval create` with those"
        " settings and the same --job-name",
    )


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
