"""Which tasks a job takes, and from where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import ConfigError
from benchflow.job.config import JobConfig
from benchflow.job.source import TaskSource, choose, find

if TYPE_CHECKING:
    from tests.job.conftest import MakeTask

FOLDERS = [Path(f"t{number}") for number in range(20)]


def test_the_same_seed_gives_the_same_order() -> None:
    shuffled = choose(FOLDERS, JobConfig(shuffle=True, seed=3))
    assert shuffled == choose(FOLDERS, JobConfig(shuffle=True, seed=3))
    assert shuffled != choose(FOLDERS, JobConfig(shuffle=True, seed=4))
    assert sorted(shuffled) == sorted(FOLDERS)
    assert choose(FOLDERS, JobConfig(shuffle=True, seed=3, n_tasks=5)) == shuffled[:5]
    assert choose(FOLDERS, JobConfig(n_tasks=2)) == FOLDERS[:2]
    assert choose(FOLDERS, JobConfig(n_tasks=200)) == FOLDERS


async def test_a_folder_with_filters(make_task: MakeTask, tmp_path: Path) -> None:
    for name in ("a1", "a2", "b1"):
        make_task(name)
    found = await find(TaskSource(path=tmp_path / "tasks"), JobConfig(include=["a*"], exclude=["a2"]))
    assert [folder.name for folder in found.folders] == ["a1"]
    assert found.commit is None


async def test_a_registry(make_task: MakeTask, tmp_path: Path) -> None:
    make_task("one")
    make_task("two")
    tasks = [{"name": name, "path": f"tasks/{name}"} for name in ("two", "one")]
    registry = tmp_path / "registry.json"
    registry.write_text(json.dumps([{"name": "mine", "version": "1", "tasks": tasks}]))
    found = await find(TaskSource(path=registry, dataset="mine@1"), JobConfig(n_tasks=1))
    assert [folder.name for folder in found.folders] == ["two"]


@pytest.mark.needs("git")
async def test_a_repository(make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    make_task("one")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def git(*words: str) -> str:
        settings = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=main"]
        done = subprocess.run(["git", *settings, *words], cwd=tmp_path / "tasks", check=True, capture_output=True)
        return done.stdout.decode().strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "x")
    found = await find(TaskSource(repo=f"file://{tmp_path}/tasks", repo_path=".", ref="main"), JobConfig())
    assert [folder.name for folder in found.folders] == ["one"]
    assert found.commit == git("rev-parse", "HEAD")


def test_exactly_one_place() -> None:
    for wrong in ({}, {"path": Path("x"), "repo": "a/b"}):
        with pytest.raises(ConfigError, match="exactly one"):
            TaskSource(**wrong)  # type: ignore[arg-type]


def test_a_password_in_an_address_is_not_written() -> None:
    source = TaskSource(repo="https://me:secret@example.org/a/b.git", ref="main")
    assert source.to_json() == {"repo": "https://example.org/a/b.git", "ref": "main"}
