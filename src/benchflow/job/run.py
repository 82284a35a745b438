"""One go at a job's plan: remove what dead processes left, install agents, run what is left, write it all down."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

from benchflow.agent.bundle import ensure_bundle
from benchflow.errors import SandboxError
from benchflow.job.gate import Gate
from benchflow.job.host import Admission, look
from benchflow.job.house import Disk, FinishedImages
from benchflow.job.killed import add_killed
from benchflow.job.perform import perform
from benchflow.job.regrade import play_again
from benchflow.job.resume import JobPlan, work_of
from benchflow.job.retry import halt_of, retry_wait
from benchflow.job.row import error_json, settle
from benchflow.job.scheduler import Scheduler, Verdict
from benchflow.job.store import read_rows, unended
from benchflow.job.summary import (
    JobResult,
    longest_first,
    remembered_seconds,
    spent_before,
    task_seconds,
    write_summary,
)
from benchflow.rollout.plan import account_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchflow.gateway.account import Account
    from benchflow.gateway.budget import Usage
    from benchflow.gateway.server import Gateway
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
        before = list(read_rows(job_dir))
        self._rows: dict[Key, Row] = settle(before)
        self._disk = Disk(job_dir.parent, plan.config.max_disk_mb)
        self._admission = Admission(lambda: look(job_dir), ceiling=self._disk.problem)
        self._spent = add_killed(spent_before(before), unended(job_dir))
        self._gateway = _make_gateway(plan, self._spent)
        self._accounts: dict[str, list[Account]] = {}
        left = [plan.measurements[work.key[0]] for work in work_of(plan, self._rows)]
        self._images = FinishedImages(left) if plan.config.remove_images else None
        self._written = 0.0
        self._scheduler = Scheduler(
            self._order(),
            self._play,
            self._judge,
            concurrency=concurrency,
            gate=Gate(self._admission, self._gateway, self._accounts_of),
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
                async with self._gateway or nullcontext():
                    await self._schedule()
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
            await self._disk.measure(plans[0].backend)
        except SandboxError as error:
            self._remark(f"what dead processes left was not removed: {error.message}")
        if self._plan.regrades:
            return
        specs = {player.spec.ref: player.spec for plan in plans for player in plan.players.values()}
        for spec in specs.values():
            if spec.kind != "builtin":
                await ensure_bundle(spec, log=self._once(f"installing the agent {spec.ref}"))

    async def _schedule(self) -> None:
        """Run what is left; when the gateway finds out that it must end, that is said at once."""

        if self._gateway is None:
            await self._scheduler.run()
            return
        alarm = self._gateway.alarm

        async def listen() -> None:
            await alarm.wait()
            self._scheduler.look()

        listening = asyncio.create_task(listen())
        try:
            await self._scheduler.run()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    def _accounts_of(self, work: Work) -> list[Account]:
        """Whom a rollout is going to ask."""
        measurement = self._plan.measurements[work.key[0]]
        if measurement.id not in self._accounts:
            found = (account_for(player) for player in measurement.plan.players.values())
            self._accounts[measurement.id] = [account for account in found if account]
        return self._accounts[measurement.id]

    async def _play(self, work: Work) -> Row:
        measurement = self._plan.measurements[work.key[0]]
        self._log.emit("started", **self._about(work))
        watcher = self._observer.watch(work, measurement) if self._observer else None
        if self._plan.regrades:
            return await play_again(work, measurement, self._plan.regrades.rows[work.key], self._job_dir.name, watcher)
        return await perform(work, measurement, self._job_dir, watcher, self._gateway)

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
        await self._tidy(work, row, final=wait is None)
        return Verdict(wait, halt)

    async def _tidy(self, work: Work, row: Row, *, final: bool) -> None:
        """Count what a rollout left on disk; after the last one of its task, remove the task's image if asked to."""
        one = self._plan.measurements[work.key[0]]
        try:
            await self._disk.added(row.rollout_dir, one.plan.backend)
            for name in await self._images.ended(one) if self._images and final else ():
                self._remark(f"removed the image {name}")
        except SandboxError as error:
            self._remark(f"what is not needed any more was not removed: {error.message}")

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
        return "interrupted" if self._scheduler.unfinished else "finished"

    def _write(self, state: State) -> JobResult:
        lock = self._plan.lock
        rows = [self._rows[key] for key in lock.keys if key in self._rows and not self._rows[key].cancelled]
        message = "; ".join(halt.message for halt in self._scheduler.halts)
        spent = self._gateway.budget.usage if self._gateway else self._spent
        result = JobResult(self._job_dir, state, rows, lock.total, message, spent.to_json() if spent.requests else None)
        write_summary(lock, result)
        self._written = time.monotonic()
        return result


def _make_gateway(plan: JobPlan, spent: Usage) -> Gateway | None:
    """One for all rollouts; none where no agent asks a model through it, because it takes long to load."""
    players = (player for one in plan.measurements.values() for player in one.plan.players.values())
    if not any(player.through_gateway for player in players):
        return None
    from benchflow.gateway.budget import Limits
    from benchflow.gateway.litellm_bridge.translator import LiteLLMTranslator
    from benchflow.gateway.server import Gateway

    limits = Limits(plan.config.max_job_cost, plan.config.max_job_tokens)
    return Gateway(limits=limits, spent=spent, translator=LiteLLMTranslator())
