"""Which performance a rollout is: it stays the same when only the verifier changes, and with nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchflow.errors import TaskError
from benchflow.job.played import played_digest
from benchflow.task.digest import file_digests, task_digest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.job.conftest import MakeTask


def played(folder: Path, *, solved: bool = False) -> str:
    return played_digest(folder, file_digests(folder), solved=solved)


@pytest.fixture
def task(make_task: MakeTask) -> Path:
    folder = make_task("t")
    with (folder / "task.toml").open("a") as file:
        file.write('[verifier]\ntimeout_sec = 60\n[[steps]]\nname = "one"\n')
    (folder / "steps" / "one" / "tests").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    "path", ["tests/test.sh", "tests/new.py", "steps/one/tests/test.sh", "solution/solve.sh", "README.md"]
)
def test_what_an_agent_never_sees_does_not_count(task: Path, path: str) -> None:
    before, digest = played(task), task_digest(task)
    (task / path).write_text("changed\n")
    assert task_digest(task) != digest
    assert played(task) == before


@pytest.mark.parametrize("path", ["instruction.md", "environment/Dockerfile", "environment/new", "steps/one/workdir/x"])
def test_what_an_agent_meets_counts(task: Path, path: str) -> None:
    before = played(task)
    (task / path).parent.mkdir(parents=True, exist_ok=True)
    (task / path).write_text("changed\n")
    assert played(task) != before


def test_the_solution_counts_when_it_is_what_is_played(task: Path) -> None:
    before = played(task, solved=True)
    (task / "solution" / "solve.sh").write_text("changed\n")
    assert played(task, solved=True) != before


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("timeout_sec = 60", "timeout_sec = 90", True),
        ('tags = ["small"]', 'tags = ["large"]', True),
        ('name = "one"', 'name = "one"\nmin_reward = 0.5', True),
        ("[verifier]", "# a comment\n[verifier]", True),
        ('network_mode = "no-network"', 'network_mode = "public"', False),
        ("[verifier]", "[agent]\ntimeout_sec = 5\n[verifier]", False),
    ],
)
def test_of_the_description_only_what_an_agent_meets_counts(task: Path, old: str, new: str, *, same: bool) -> None:
    before = played(task)
    text = (task / "task.toml").read_text()
    assert old in text
    (task / "task.toml").write_text(text.replace(old, new))
    assert (played(task) == before) is same


def test_one_file_tasks_have_performances_too(tmp_path: Path) -> None:
    (tmp_path / "verifier").mkdir()
    (tmp_path / "verifier" / "test.sh").write_text("1\n")
    (tmp_path / "task.md").write_text("---\nverifier:\n  timeout_sec: 60\n---\n\nDo it.\n")
    before = played(tmp_path)
    (tmp_path / "verifier" / "test.sh").write_text("2\n")
    (tmp_path / "task.md").write_text("---\nverifier:\n  timeout_sec: 90\n---\n\nDo it.\n")
    assert played(tmp_path) == before
    (tmp_path / "task.md").write_text("---\nverifier:\n  timeout_sec: 90\n---\n\nDo it well.\n")
    assert played(tmp_path) != before


def test_what_is_no_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="not a task"):
        played_digest(tmp_path, {}, solved=False)
    (tmp_path / "task.toml").write_text("[")
    with pytest.raises(TaskError, match="not valid TOML"):
        played_digest(tmp_path, {}, solved=False)
