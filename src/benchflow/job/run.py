"""One go at a job's plan: remove what dead processes left, install agents, run what is left, write it all down."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING

from benchflow.agent.bundle import ensure_bundle
from benchflow.errors import SandboxError
from benchflow.job.host import Admission, look
from benchflow.job.perform import perform
from benchflow.job.resume import JobPlan, work_of
from benchflow.job.retry import halt_of, retry_wait
from benchflow.job.row import error_json, settle
from benchflow.job.scheduler import Scheduler, Verdict
from benchflow.job.store import read_rows
from benchflow.job.summary import JobResult, longest_first, remembered_seconds, task_seconds, write_summary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchflow.job.events import EventLog, JobObserver
    from benchflow.job.lock import Key
    from benchflow.job.row import Row
    from benchflow.job.scheduler import Work
    from benchflow.job.summary import State

SUMMARY_EVERY = 5.0
"""Seconds between two writings of summary.json while the job runs."""

PROBE_TIMEOUT = 20.0
"""Seconds a backend gets to answer whether it still works, after a rollout was lost to it."""


class Run:
    """One go at a plan, in a folder that is held."""

    def __init__(
        self, plan: JobPlan, job_dir: Path, log: EventLog, observer: JobObserver | None, concurrency: int
    ) -> None:
        self._plan = plan
        self._job_dir = job_dir
        self._log = log
        self._observer = observer
        self._rows: dict[Key, Row] = settle(read_rows(job_dir))
        self._admission = Admission(lambda: look(job_dir))
        self._written = 0.0
        self._scheduler = Scheduler(
            self._order(),
            self._play,
            self._judge,
            concurrency=concurrency,
            gate=self._admission,
            on_halt=lambda halt: log.emit("halted", message=halt.message, model=halt.model),
        )

    async def go(self) -> JobResult:
        left = work_of(self._plan, self._rows)
        total = self._plan.lock.total
        self._log.emit("planned", total=total, finished=total - len(left), to_do=len(left))
        self._write("running")
        state: State = "interrupted"
        try:
            if left:
                await self._prepare()
                await self._scheduler.run()
            state = self._state()
        finally:
            result = self._write(state)
            self._log.emit("ended", state=state, score=dataclasses.asdict(result.scores))
        return result

    def drain(self) -> bool:
        if self._plan.lock.total < 2 or not self._scheduler.running:
            return False
        self._log.emit("draining", running=self._scheduler.running)
        self._scheduler.drain()
        return True

    def _order(self) -> list[Work]:
        left = work_of(self._plan, self._rows)
        if self._plan.config.shuffle:
            return left
        tasks = [self._plan.measurements[work.key[0]].task for work in left]
        known = remembered_seconds(self._job_dir.parent) | task_seconds(self._rows.values())
        return longest_first(left, tasks, known)

    async def _prepare(self) -> None:
        """Remove what dead processes left, and install agents once, so that a failure is said once."""
        plans = [one.plan for one in self._plan.measurements.values()]
        try:
            for info in await plans[0].backend.reap():
                self._remark(f"removed the sandbox {info.id} that a dead process left")
        except SandboxError as error:
            self._remark(f"what dead processes left was not removed: {error.message}")
        specs = {player.spec.ref: player.spec for plan in plans for player in plan.players.values()}
        for spec in specs.values():
            if spec.kind != "builtin":
                await ensure_bundle(spec, log=self._once(f"installing the agent {spec.ref}"))

    async def _play(self, work: Work) -> Row:
        measurement = self._plan.measurements[work.key[0]]
        self._log.emit("started", **self._about(work))
        watcher = self._observer.watch(work, measurement) if self._observer else None
        return await perform(work, measurement, self._job_dir, watcher)

    async def _judge(self, work: Work, row: Row) -> Verdict:
        self._rows |= settle([row, *([self._rows[row.key]] if row.key in self._rows else [])])
        self._log.emit(
            "finished",
            **self._about(work),
            rollout_dir=row.rollout_dir.name,
            reward=row.reward,
            passed=row.passed,
            error=error_json(row.error),
            seconds=row.seconds,
            usage=row.usage,
        )
        if time.monotonic() - self._written > SUMMARY_EVERY:
            self._write("running")
        halt = halt_of(row, backend_problem=await self._probe(row), disk_free_mb=self._admission.disk_mb)
        wait = retry_wait(row, work.retries, self._plan.config.retry)
        if wait is not None and not halt and not self._scheduler.drained:
            self._log.emit("retrying", **self._about(work), wait=wait, error=error_json(row.error))
        return Verdict(wait, halt)

    async def _probe(self, row: Row) -> str:
        """What is wrong with the backend that a rollout was lost to; empty when it answers."""
        if row.scored or row.error is None or row.error.boundary != "sandbox":
            return ""
        backend = self._plan.measurements[row.measurement].plan.backend
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                await backend.list()
        except SandboxError as error:
            return error.message
        except TimeoutError:
            return f"{backend.name}: no answer within {PROBE_TIMEOUT:g} s"
        return ""

    def _about(self, work: Work) -> dict[str, object]:
        one = self._plan.measurements[work.key[0]]
        return {
            "measurement": one.id,
            "task": one.task,
            "agent": one.agent,
            "model": one.model,
            "attempt": work.key[1],
            "try": work.tried,
        }

    def _once(self, message: str) -> Callable[[str], None]:
        """A log that says one thing when anything is said; a failure brings the end of its output with it."""
        left = [message]
        return lambda _: self._remark(left.pop()) if left else None

    def _remark(self, message: str) -> None:
        self._log.emit("remark", message=message)

    def _state(self) -> State:
        if self._scheduler.halts:
            return "halted"
        ended = (self._rows.get(key) for key in self._plan.lock.keys)
        left = any(row is None or row.cancelled for row in ended)
        return "interrupted" if self._scheduler.drained and left else "finished"

    def _write(self, state: State) -> JobResult:
        lock = self._plan.lock
        rows = [self._rows[key] for key in lock.keys if key in self._rows and not self._rows[key].cancelled]
        message = "; ".join(halt.message for halt in self._scheduler.halts)
        result = JobResult(self._job_dir, state, rows, lock.total, message)
        write_summary(lock, result)
        self._written = time.monotonic()
        return result
