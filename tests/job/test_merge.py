"""Jobs put together: nothing that was scored is lost, and nothing is taken for what it is not."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from benchflow import Job, JobConfig
from benchflow.errors import ConfigError
from benchflow.job.listing import job_info
from benchflow.job.merge import merge_jobs
from benchflow.job.store import read_rows, settled

if TYPE_CHECKING:
    from pathlib import Path

    from tests.job.conftest import MakeTask

    from benchflow.job.summary import JobResult

pytestmark = [pytest.mark.needs("local"), pytest.mark.usefixtures("local")]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


@pytest.fixture
def tasks(make_task: MakeTask, tmp_path: Path) -> Path:
    for name in ("a", "b"):
        make_task(name)
    return tmp_path / "tasks"


async def run(tasks: Path, jobs: Path, name: str, **settings: Any) -> JobResult:
    config = JobConfig(**{"agent": "nop", "environment": "local", **settings})
    return await Job(tasks, jobs, config, job_name=name).run()


async def test_a_job_that_is_added_to_keeps_what_it_has_and_what_it_has_to_do(tasks: Path, jobs: Path) -> None:
    await run(tasks, jobs, "mine", include=["a"], attempts=2)
    await run(tasks, jobs, "theirs", include=["b"])
    first = next(row for row in read_rows(jobs / "mine") if row.attempt == 1)
    shutil.rmtree(first.rollout_dir)

    assert merge_jobs([jobs / "theirs"], jobs / "mine") == 2
    assert sorted((row.task, row.attempt) for row in settled(jobs / "mine")) == [("demo/a", 2), ("demo/b", 1)]
    info = job_info(jobs / "mine")
    assert (info.state, info.score.scored, info.score.total) == ("interrupted", 2, 3)
    final = await Job.resume(jobs / "mine").run()
    assert (final.state, final.scores.scored, len(list(read_rows(jobs / "mine")))) == ("finished", 3, 3)


async def test_more_attempts_take_the_numbers_without_a_score(tasks: Path, jobs: Path) -> None:
    await run(tasks, jobs, "mine", include=["a"], attempts=2)
    await run(tasks, jobs, "theirs", include=["a"], attempts=2)
    shutil.rmtree(next(row for row in read_rows(jobs / "mine") if row.attempt == 1).rollout_dir)
    assert merge_jobs([jobs / "theirs"], jobs / "mine") == 3
    assert sorted(row.attempt for row in settled(jobs / "mine")) == [1, 2, 3]
    assert job_info(jobs / "mine").state == "finished"


async def test_what_was_measured_with_other_settings_is_not_resumed_with_these(tasks: Path, jobs: Path) -> None:
    settings: list[dict[str, Any]] = [{}, {"agent": "oracle"}, {"agent_timeout": 77.0}, {"include": ["b"]}]
    for number, given in enumerate(settings):
        await run(tasks, jobs, str(number), keep_workspace=True, **{"include": ["a"], **given})
    assert merge_jobs([jobs / str(number) for number in range(4)], jobs / "all") == 4
    assert (await Job.resume(jobs / "all").run()).scores.scored == 4, "there is nothing to do"
    with pytest.raises(ConfigError, match="merged from a job with other settings") as caught:
        await Job.resume(jobs / "all", regrade=True).plan()
    assert "2 problems" in str(caught.value)

    config = JobConfig(agent=["nop", "oracle"], environment="local", include=["a"])
    again = await Job(tasks, jobs, config, job_name="all", regrade=True).run()
    assert (again.state, again.scores.passed, again.scores.scored) == ("finished", 1, 2)
