"""`bench tasks`: what it prints, what it makes, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from benchflow.cli.app import app
from benchflow.errors import TaskError
from benchflow.task.scaffold import init_task

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


def bench(*words: object) -> Result:
    return CliRunner().invoke(app, ["tasks", *map(str, words)])


def parsed(*words: object, code: int = 0) -> Any:
    result = bench(*words, "--json")
    assert result.exit_code == code
    return json.loads(result.stdout)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    folder = init_task("broken", tmp_path)
    (folder / "task.toml").write_text('version = "1.0"\n[environment]\ncpus = "x"\n')
    return folder


@pytest.mark.parametrize("form", ["toml", "md"])
def test_init_makes_a_task_that_checks(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = bench("init", "mine", "--format", form)
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "made mine")
    assert (tmp_path / "mine" / f"task.{form}").is_file()
    result = bench("check", "mine")
    assert (result.exit_code, result.stdout) == (0, "1 task checked: 0 errors, 0 warnings\n")


def test_init_elsewhere(tmp_path: Path) -> None:
    assert parsed("init", "mine", "--dir", tmp_path / "deep") == {"path": f"{tmp_path}/deep/mine", "format": "toml"}
    again = bench("init", "mine", "--dir", tmp_path / "deep")
    assert again.exit_code == 1
    assert isinstance(again.exception, TaskError)
    assert bench("init", "mine", "--format", "yaml").exit_code == 2


def test_check_prints_every_problem_and_counts(tmp_path: Path, broken: Path) -> None:
    init_task("good", tmp_path)
    result = bench("check", tmp_path)
    assert result.exit_code == 1
    first, second, last = result.stdout.splitlines()
    assert first.startswith(f"{broken}/task.toml:1: warning: ")
    assert second.startswith(f"{broken}/task.toml:3: environment.cpus: ")
    assert last == "2 tasks checked: 1 error, 1 warning"


def test_check_as_json(broken: Path) -> None:
    report = parsed("check", broken, code=1)
    assert (report["checked"], report["errors"], report["warnings"]) == (1, 1, 1)
    assert report["tasks"][0]["ok"] is False
    assert [(p["line"], p["severity"]) for p in report["tasks"][0]["problems"]] == [(1, "warning"), (3, "error")]


def test_check_of_nothing(tmp_path: Path) -> None:
    assert bench("check").exit_code == 2
    result = bench("check", tmp_path / "nothing")
    assert result.exit_code == 1
    assert "does not exist" in result.stdout


def test_warnings_alone_do_not_fail(tmp_path: Path) -> None:
    folder = init_task("t", tmp_path)
    (folder / "task.toml").write_text('version = "1.0"\n')
    result = bench("check", folder)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "1 task checked: 0 errors, 1 warning")


def test_migrate_and_export(tmp_path: Path) -> None:
    source = init_task("t", tmp_path)
    assert bench("migrate", source, tmp_path / "md").stdout == f"made {tmp_path}/md\n"
    assert bench("export", tmp_path / "md", tmp_path / "back").exit_code == 0
    assert (tmp_path / "back/task.toml").read_text() == (source / "task.toml").read_text()
    assert bench("migrate", tmp_path / "md", tmp_path / "x").exit_code == 1
    assert parsed("migrate", source, tmp_path / "md2") == {"path": f"{tmp_path}/md2", "format": "md"}
    assert parsed("export", tmp_path / "md2", tmp_path / "back2") == {"path": f"{tmp_path}/back2", "format": "toml"}


def test_digest(tmp_path: Path) -> None:
    folder = init_task("t", tmp_path)
    result = bench("digest", tmp_path)
    assert result.exit_code == 0
    value, path = result.stdout.split()
    assert value.startswith("sha256:")
    assert path == str(folder)
    assert parsed("digest", folder) == {str(folder): value}


@pytest.mark.parametrize(("name", "why"), [("none", "nothing there"), ("file", "it is a file"), ("", "it has neither")])
def test_digest_of_what_is_no_task(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "file").touch()
    result = bench("digest", tmp_path / name)
    assert result.exit_code == 1
    assert isinstance(result.exception, TaskError)
    assert why in result.exception.message


@pytest.mark.parametrize("command", ["init", "check", "migrate", "export", "digest"])
def test_help_has_examples(command: str) -> None:
    result = bench(command, "--help")
    assert result.exit_code == 0
    assert f"bench tasks {command}" in result.stdout


def test_a_mistake_is_a_message_and_not_a_traceback(tmp_path: Path) -> None:
    words = ["tasks", "migrate", str(tmp_path / "nothing"), str(tmp_path / "x")]
    run = subprocess.run(
        [sys.executable, "-m", "benchflow.cli.app", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 1
    assert run.stdout == ""
    assert run.stderr.startswith("error: ")
    assert "Traceback" not in run.stderr
