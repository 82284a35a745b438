"""Whole jobs in real sandboxes: run, run again, extend, shrink, retry, halt, resume, merge."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from benchflow import Job, JobConfig, RetryConfig, collect_metrics
from benchflow.errors import ConfigError
from benchflow.evaluation import Evaluation, EvaluationConfig, EvaluationResult
from benchflow.job.listing import job_info
from benchflow.job.lock import read_lock
from benchflow.job.merge import merge_jobs
from benchflow.job.store import held, job_folders, read_rows, settled
from benchflow.sandbox.registry import get_backend

if TYPE_CHECKING:
    from pathlib import Path

    from tests.job.conftest import MakeTask

    from benchflow.job.plan import Measurement
    from benchflow.job.scheduler import Work

pytestmark = pytest.mark.needs("local")

BROKEN = "#!/bin/sh\nexit 0\n"
"""A verifier that leaves no reward."""


class Watch:
    """Keeps the events of a job."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def job_event(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def watch(self, work: Work, measurement: Measurement) -> None:
        return None

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == name]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


@pytest.fixture
def tasks(make_task: MakeTask, tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        make_task(name)
    return tmp_path / "tasks"


async def test_a_matrix_runs_and_is_not_run_again(tasks: Path, jobs: Path, local: str) -> None:
    config = JobConfig(agent=["oracle", "nop"], environment=local, attempts=2, concurrency=3)
    watch = Watch()
    result = await Job(tasks_dir=tasks, jobs_dir=jobs, config=config, job_name="x", observer=watch).run()
    assert (result.passed, result.total, result.score, result.state) == (6, 12, 0.5, "finished")
    assert len(list(read_rows(jobs / "x"))) == 12
    assert {row.reward for row in result.rollouts if row.agent == "oracle"} == {1.0}
    assert len(watch.named("finished")) == 12
    written = [json.loads(line) for line in (jobs / "x" / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in written] == [event["event"] for event in watch.events]
    summary = json.loads((jobs / "x" / "summary.json").read_text())
    assert (summary["state"], summary["score"]["passed"]) == ("finished", 6)
    assert not [info for info in await get_backend(local).list() if info.job == "x"]

    again = Watch()
    same = await Job(tasks_dir=tasks, jobs_dir=jobs, config=config, job_name="x", observer=again).run()
    assert same.passed == 6
    assert [event["event"] for event in again.events] == ["planned", "ended"]
    metrics = collect_metrics(jobs, benchmark="mine")
    assert [(group.name, group.score.share) for group in metrics.groups] == [("nop", 0.0), ("oracle", 1.0)]
    assert metrics.tags[0].name == "small"


async def test_extend_and_shrink(tasks: Path, jobs: Path, local: str) -> None:
    async def run(**settings: Any) -> tuple[int, int]:
        config = JobConfig(environment=local, agent="nop", **settings)
        result = await Job(tasks_dir=tasks, jobs_dir=jobs, config=config, job_name="x").run()
        return result.total, len(list(read_rows(jobs / "x")))

    assert await run(include=["a"]) == (1, 1)
    assert await run(include=["a", "b"], attempts=2) == (4, 4)
    assert await run(include=["b"]) == (1, 4)
    assert collect_metrics(jobs / "x").overall.score.total == 1
    assert len(settled(jobs / "x")) == 1


async def test_a_changed_task_is_measured_anew(tasks: Path, jobs: Path, local: str) -> None:
    async def run() -> list[float | None]:
        config = JobConfig(environment=local, agent="nop", include=["a"])
        result = await Job(tasks_dir=tasks, jobs_dir=jobs, config=config, job_name="x").run()
        return [row.reward for row in result.rollouts]

    assert await run() == [0.0]
    (tasks / "a" / "tests" / "test.sh").write_text(
        "#!/bin/sh\nmkdir -p /logs/verifier\necho 1 > /logs/verifier/reward.txt\n"
    )
    assert await run() == [1.0]
    assert len(list(read_rows(jobs / "x"))) == 2


async def test_a_lost_rollout_is_tried_again_and_its_evidence_kept(
    make_task: MakeTask, tasks: Path, jobs: Path, local: str
) -> None:
    """A healthcheck that never succeeds is a passing cause: three tries, three folders, one row."""
    folder = make_task("d")
    with (folder / "task.toml").open("a") as file:
        file.write('[environment.healthcheck]\ncommand = "false"\nretries = 1\ninterval_sec = 0.01\n')
    config = JobConfig(environment=local, retry=RetryConfig(max_retries=2, min_wait_sec=0.01))
    watch = Watch()
    result = await Job(tasks_dir=tasks, jobs_dir=jobs, config=config, job_name="x", observer=watch).run()
    assert (result.passed, result.scores.scored, result.scores.lost, result.total) == (3, 3, 1, 4)
    assert result.state == "finished"
    assert [event["wait"] for event in watch.named("retrying")] == pytest.approx([0.01, 0.02])
    tries = sorted(row.tried for row in read_rows(jobs / "x") if row.task == "demo/d")
    assert tries == [1, 2, 3]
    assert result.errors == 1

    (folder / "task.toml").write_text((folder / "task.toml").read_text().replace('"false"', '"true"'))
    with pytest.raises(ConfigError, match="has changed since the job began"):
        await Job.resume(jobs / "x").run()
    (folder / "task.toml").write_text((folder / "task.toml").read_text().replace('"true"', '"false"'))
    resumed = await Job.resume(jobs / "x").run()
    assert resumed.scores.lost == 1
    assert max(row.tried for row in read_rows(jobs / "x")) == 6


async def test_a_verifier_without_a_reward_is_lost_not_zero(make_task: MakeTask, jobs: Path, local: str) -> None:
    folder = make_task("v", test=BROKEN)
    result = await Job(folder, jobs, JobConfig(environment=local)).run()
    assert (result.scores.scored, result.scores.lost, result.errors) == (0, 1, 1)
    assert result.rollouts[0].error is not None
    assert result.rollouts[0].error.boundary == "verifier"


async def test_a_job_that_is_resumed_ends_like_one_that_was_not(tasks: Path, jobs: Path, local: str) -> None:
    config = JobConfig(agent=["oracle", "nop"], environment=local, attempts=2, agent_env={"MODE": "x"})
    await Job(tasks, jobs, config, job_name="x").run()
    for folder in list((jobs / "x").glob("a__*")):
        shutil.rmtree(folder)
    next((jobs / "x").glob("b__*/result.json")).unlink()
    with pytest.raises(ConfigError, match="--agent-env MODE="):
        await Job.resume(jobs / "x").run()
    watch = Watch()
    job = Job.resume(jobs / "x", agent_env={"MODE": "x"})
    job.observer = watch
    plan = await job.plan()
    assert len(plan.to_do) == 5
    assert set(plan.measurements) < {one.id for one in plan.lock.measurements}
    result = await job.run()
    assert (result.passed, result.total, result.state) == (6, 12, "finished")
    assert len(watch.named("finished")) == 5
    assert "MODE" in (jobs / "x" / "job.json").read_text()


async def test_what_cannot_be_resumed(tmp_path: Path, local: str) -> None:
    with pytest.raises(ConfigError, match=r"no job\.json"):
        await Job.resume(tmp_path).run()


async def test_a_folder_in_use_is_refused(tasks: Path, jobs: Path, local: str) -> None:
    with held(jobs / "x"), pytest.raises(ConfigError, match="another process"):
        await Job(tasks, jobs, JobConfig(environment=local), job_name="x").run()


async def test_draining_and_cancelling_leave_a_job_to_resume(
    make_task: MakeTask, tmp_path: Path, jobs: Path, local: str
) -> None:
    for name in ("a", "b", "c", "d"):
        make_task(name, solve="#!/bin/sh\nsleep 0.5\ntouch /app/done\n")
    config = JobConfig(environment=local, concurrency=1)
    started = asyncio.Event()

    class Starts(Watch):
        def job_event(self, event: dict[str, Any]) -> None:
            super().job_event(event)
            if event["event"] == "started":
                started.set()

    job = Job(tmp_path / "tasks", jobs, config, job_name="x", observer=Starts())
    assert not job.drain()
    run = asyncio.create_task(job.run())
    await started.wait()
    assert job.drain()
    result = await run
    assert (result.passed, result.total, result.state) == (1, 4, "interrupted")
    assert job_info(jobs / "x").state == "interrupted"

    started.clear()
    again = Job.resume(jobs / "x")
    again.observer = Starts()
    run = asyncio.create_task(again.run())
    await started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert job_info(jobs / "x").state == "interrupted"
    assert not [info for info in await get_backend(local).list() if info.job == "x"]

    final = await Job.resume(jobs / "x", concurrency=4).run()
    assert (final.passed, final.total, final.state) == (4, 4, "finished")


async def test_merging_adds_attempts_and_does_nothing_twice(tasks: Path, jobs: Path, local: str) -> None:
    for name, include in (("one", ["a", "b"]), ("two", ["b", "c"])):
        await Job(tasks, jobs, JobConfig(environment=local, include=include), job_name=name).run()
    assert merge_jobs([jobs / "one", jobs / "two"], jobs / "both") == 4
    assert merge_jobs([jobs / "two"], jobs / "both") == 4
    rows = settled(jobs / "both")
    assert sorted((row.task, row.attempt) for row in rows) == [
        ("demo/a", 1),
        ("demo/b", 1),
        ("demo/b", 2),
        ("demo/c", 1),
    ]
    assert job_info(jobs / "both").score.total == 4
    lock = read_lock(jobs / "both")
    assert lock is not None
    assert {one.task: one.attempts for one in lock.measurements} == {"demo/a": 1, "demo/b": 2, "demo/c": 1}
    (tasks / "a" / "instruction.md").write_text("another\n")
    await Job(tasks, jobs, JobConfig(environment=local, include=["a"]), job_name="three").run()
    with pytest.raises(ConfigError, match="other content"):
        merge_jobs([jobs / "three"], jobs / "both")


async def test_nothing_is_made_when_the_plan_is_refused(tasks: Path, jobs: Path, local: str) -> None:
    with pytest.raises(ConfigError):
        await Job(tasks, jobs, JobConfig(agent="claud", environment=local)).run()
    with pytest.raises(ConfigError, match="cannot be read"):
        job_folders(jobs)
    with pytest.raises(ConfigError, match="exactly one"):
        Job()
    for name in ("../x", "..", ".", "x/"):
        with pytest.raises(ConfigError, match="name of a folder"):
            Job(tasks, job_name=name)


async def test_from_yaml(tasks: Path, tmp_path: Path, local: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        f"task_dir: tasks\nagent: nop\nenvironment: local\nn_tasks: 2\njobs_dir: {tmp_path}/out\njob_name: y\n"
    )
    result = await Job.from_yaml(file).run()
    assert (result.total, result.job_dir) == (2, tmp_path / "out" / "y")


def test_the_other_names() -> None:
    assert (Evaluation, EvaluationConfig) == (Job, JobConfig)
    assert EvaluationResult.__name__ == "JobResult"
