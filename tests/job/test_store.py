"""Folders of results: what is a job, which rollouts count, and that only one process works on one."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import ConfigError
from benchflow.job.store import held, is_held, is_job, job_folders, new_job_name, read_rows, settled, unreadable

if TYPE_CHECKING:
    from pathlib import Path

    from tests.job.conftest import WriteResult


def test_what_is_read(tmp_path: Path, write_result: WriteResult) -> None:
    write_result(tmp_path, "a__1", 1.0, labels={"measurement": "m", "attempt": 2, "try": 3})
    write_result(tmp_path, "b__2", None)
    (tmp_path / "c__3").mkdir()
    (tmp_path / "c__3" / "config.json").write_text("{}")
    (tmp_path / "d__4").mkdir()
    (tmp_path / "d__4" / "result.json").write_text("{broken")
    (tmp_path / "e__5").mkdir()
    (tmp_path / "e__5" / "result.json").write_text('{"task": 1}')
    (tmp_path / "summary.json").write_text("{}")
    rows = {row.task: row for row in read_rows(tmp_path)}
    assert set(rows) == {"a", "b"}
    assert rows["a"].key == ("m", 2)
    assert rows["a"].tried == 3
    assert rows["a"].rollout_dir == tmp_path / "a__1"
    problems = unreadable(tmp_path)
    assert len(problems) == 2
    assert all("__" in problem for problem in problems)


def test_without_a_lock_everything_counts(tmp_path: Path, write_result: WriteResult) -> None:
    write_result(tmp_path, "a__1")
    write_result(tmp_path, "a__2")
    assert len(settled(tmp_path)) == 2


def test_a_job_or_a_folder_of_jobs(tmp_path: Path, write_result: WriteResult) -> None:
    write_result(tmp_path / "jobs" / "2026-01-01__10-00-00", "a__1")
    write_result(tmp_path / "jobs" / "second", "a__1")
    (tmp_path / "jobs" / "third").mkdir()
    (tmp_path / "jobs" / "third" / "job.json").write_text("{}")
    (tmp_path / "jobs" / "other").mkdir()
    jobs = job_folders(tmp_path / "jobs")
    assert [job.name for job in jobs] == ["2026-01-01__10-00-00", "second", "third"]
    assert job_folders(jobs[0]) == [jobs[0]]
    assert not is_job(tmp_path / "jobs")
    with pytest.raises(ConfigError, match="no results"):
        job_folders(tmp_path / "jobs" / "other")
    with pytest.raises(ConfigError, match="cannot be read"):
        job_folders(tmp_path / "nowhere")


def test_names_are_never_given_twice(tmp_path: Path) -> None:
    assert len({new_job_name(tmp_path) for _ in range(5)}) == 5


HOLD = """
import sys
from pathlib import Path
from benchflow.job.store import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_do_not_work_on_one_job(tmp_path: Path) -> None:
    job = tmp_path / "job"
    assert not is_held(job)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(job)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert is_held(job)
        with pytest.raises(ConfigError, match=f"another process \\({other.pid}\\)"), held(job):
            pass
        other.kill()
    assert not is_held(job)
    with held(job):
        assert is_held(job)
    assert not is_held(job)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"), held(tmp_path / "file" / "job"):
        pass
    (tmp_path / "nowhere").symlink_to(tmp_path / "not-there")
    for place in ("file", "file/jobs", "nowhere"):
        with pytest.raises(ConfigError, match="cannot be written"):
            new_job_name(tmp_path / place)
