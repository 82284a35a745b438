"""A job: many rollouts, planned as a whole, run a few at a time, written so that it can be resumed at any moment.

`Job.run` plans, holds the job's folder, and does what is not finished yet. Running the same job into the same folder
again does nothing twice: a rollout that has a score is kept.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.job.config import JobConfig
from benchflow.job.events import EventLog
from benchflow.job.lock import make_lock, read_lock, write_lock
from benchflow.job.plan import measure_all
from benchflow.job.regrade import choose, relocked
from benchflow.job.resume import JobPlan, refuse_unfinished_regrade, regrade_plan, resume_plan
from benchflow.job.row import settle
from benchflow.job.run import Run
from benchflow.job.source import TaskSource, find
from benchflow.job.store import held, new_job_name, read_rows
from benchflow.job.yaml_config import job_from_yaml
from benchflow.rollout.regrade import idle_cast

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from benchflow.job.events import JobObserver
    from benchflow.job.summary import JobResult


class Job:
    """Tasks, settings and a folder. Not reusable: one object is one run.

    `job_dir` is where its results are, from when there is something to resume; None before.
    """

    def __init__(
        self,
        tasks_dir: Path | str | None = None,
        jobs_dir: Path | str = "jobs",
        config: JobConfig | None = None,
        *,
        source: TaskSource | None = None,
        job_name: str | None = None,
        observer: JobObserver | None = None,
        regrade: bool = False,
    ) -> None:
        """Results go to `jobs_dir/job_name`; without a name, to one made of the time.

        With `regrade` no agent is run: what agents left in the job of that name is scored again.
        Raises ConfigError unless exactly one of `tasks_dir` and `source` says where the tasks are.
        """
        if (tasks_dir is None) == (source is None):
            raise ConfigError("a job takes its tasks from tasks_dir or from a source: give exactly one")
        if job_name is not None and (Path(job_name).name != job_name or job_name == ".."):
            raise ConfigError(f"the job name {job_name!r} is not the name of a folder")
        if regrade and job_name is None:
            raise ConfigError("only a job that has run can be graded again", hint="name it with --job-name")
        self._source = source or TaskSource(path=Path(tasks_dir or "."))
        self._config = config or JobConfig()
        self._jobs_dir = Path(jobs_dir)
        self._job_name = job_name
        self._regrade = regrade
        self._resumed: tuple[Path, Mapping[str, str]] | None = None
        self._limits: Mapping[str, float] = {}
        self._concurrency = self._config.concurrency
        self._plan: JobPlan | None = None
        self._run: Run | None = None
        self.observer = observer
        self.job_dir: Path | None = None

    @classmethod
    def from_yaml(cls, path: Path | str) -> Self:
        """The job that a file describes. Raises ConfigError."""
        found = job_from_yaml(path)
        return cls(jobs_dir=found.jobs_dir or "jobs", config=found.config, source=found.source, job_name=found.job_name)

    @classmethod
    def resume(
        cls,
        job_dir: Path | str,
        *,
        agent_env: Mapping[str, str] | None = None,
        concurrency: int | None = None,
        regrade: bool = False,
        limits: Mapping[str, float] | None = None,
    ) -> Self:
        """The job in `job_dir`, to be finished as it was planned; with `regrade`, only to be scored again.

        `agent_env` gives the variables of agents that are not in the environment: their values are not kept. `limits`
        replace those of the job (`max_job_cost` and so on, see `config.LIMITS`).
        """
        folder = Path(job_dir)
        if folder.name in ("", ".."):
            folder = folder.resolve()
        job = cls(tasks_dir=folder, jobs_dir=folder.parent, job_name=folder.name, regrade=regrade)
        job._resumed = folder, agent_env or {}
        job._limits = limits or {}
        job._concurrency = concurrency or 0
        return job

    async def plan(self) -> JobPlan:
        """Resolve and check everything; start nothing. Raises ConfigError or TaskError with every problem."""
        if self._plan is None:
            if self._resumed:
                again = regrade_plan if self._regrade else resume_plan
                self._plan = await again(*self._resumed, self._limits)
            else:
                self._plan = await self._fresh_plan()
        return self._plan

    async def run(self) -> JobResult:
        """Do what is not finished yet and return everything that is.

        Raises ConfigError or TaskError when the job cannot be planned or its folder is in use, AgentInstallError when
        an agent cannot be installed. Whatever happens to a rollout is in the result. Cancelling stops all of them,
        cleans up, and leaves a job that can be resumed.
        """
        plan = await self.plan()
        name = self._job_name or new_job_name(self._jobs_dir)
        job_dir = self._jobs_dir / name
        concurrency = self._concurrency or plan.config.concurrency
        with held(job_dir), EventLog(job_dir, self.observer) as log:
            lock = dataclasses.replace(plan.lock, name=name, created_at=_created(job_dir, plan))
            write_lock(job_dir, lock)
            self.job_dir = job_dir
            plan = dataclasses.replace(plan, lock=lock)
            self._run = Run(plan, job_dir, log, self.observer, concurrency)
            result = await self._run.go()
            if lock.regrading and result.state == "finished":
                write_lock(job_dir, dataclasses.replace(lock, regrading=None))
            return result

    def drain(self) -> bool:
        """Start nothing more and finish what runs. False when there is nothing that could be finished apart."""
        return self._run is not None and self._run.drain()

    async def _fresh_plan(self) -> JobPlan:
        name = self._job_name or ""
        job_dir = self._jobs_dir / name
        earlier = read_lock(job_dir) if name else None
        if earlier and not self._regrade:
            refuse_unfinished_regrade(earlier, job_dir)
        found = await find(self._source, self._config)
        measurements = await measure_all(self._config, found.folders, idle_cast if self._regrade else None)
        lock = make_lock(name, self._source.to_json(), found.commit, self._config, measurements)
        rows = list(read_rows(job_dir)) if name and job_dir.is_dir() else []
        ready = {one.id: one for one in measurements}
        if not self._regrade:
            return JobPlan(lock, self._config, ready, settle(rows))
        lock = dataclasses.replace(lock, regrading=earlier.regrading if earlier else None)
        lock = relocked(lock, ready)
        return JobPlan(lock, self._config, ready, settle(rows), choose(lock, ready, rows))


def _created(job_dir: Path, plan: JobPlan) -> str:
    """When the job in this folder began, if it did before."""
    earlier = read_lock(job_dir)
    return earlier.created_at if earlier else plan.lock.created_at
