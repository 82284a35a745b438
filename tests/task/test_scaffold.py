"""A new task works: it loads without a remark, its solution earns 1 and doing nothing earns 0."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import TaskError
from benchflow.task.check import check_task
from benchflow.task.load import load_task
from benchflow.task.scaffold import init_task

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.task.task import Form


@pytest.mark.parametrize("form", ["toml", "md"])
def test_a_new_task_has_no_problems(tmp_path: Path, form: Form) -> None:
    folder = init_task("my-task", tmp_path / "new", form)
    assert folder == tmp_path / "new" / "my-task"
    assert check_task(folder) == []
    task = load_task(folder)
    assert task.form == form
    assert all(os.access(file, os.X_OK) for kind in ("tests", "solution") for file, _ in task.upload_files(kind))
    assert sorted(path.name for path in tmp_path.rglob(".*")) == []


def test_both_forms_are_the_same_task(tmp_path: Path) -> None:
    toml, md = (load_task(init_task(form, tmp_path, form)) for form in ("toml", "md"))
    assert (toml.config, toml.instruction) == (md.config, md.instruction)


def test_the_solution_earns_the_reward_and_nothing_else_does(tmp_path: Path) -> None:
    task = load_task(init_task("t", tmp_path))
    (tmp_path / "app").mkdir()

    def run(script: str) -> None:
        text = (
            (task.path / script).read_text().replace("/app/", f"{tmp_path}/app/").replace("/logs/", f"{tmp_path}/logs/")
        )
        subprocess.run(["sh", "-c", text], check=True, timeout=30, capture_output=True)

    reward = tmp_path / "logs/verifier/reward.txt"
    run("tests/test.sh")
    assert reward.read_text() == "0\n"
    run("solution/solve.sh")
    run("tests/test.sh")
    assert reward.read_text() == "1\n"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "-a", ".a", "a\0", "CON", "x" * 256, "é", "a\n", "/abs"])
def test_bad_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(TaskError, match="cannot be the name of a task"):
        init_task(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["toml", "md"])
def test_what_is_there_is_not_touched(tmp_path: Path, form: Form) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").touch()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("full", "file", "link"):
        with pytest.raises(TaskError, match="is there already"):
            init_task(name, tmp_path, form)
    (tmp_path / "empty").mkdir()
    assert check_task(init_task("empty", tmp_path, form)) == []


def test_a_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TaskError, match="cannot be made"):
        init_task("t", tmp_path / "file")
