"""Checking says everything at once: what keeps a task from loading, and what would go wrong later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchflow.task.check import check_task, expand

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Files = dict[str, str | bytes | None]

STEP = '[[steps]]\nname = "one"\n'
STEP_FILES: Files = {"task.toml": STEP, "instruction.md": None, "steps/one/instruction.md": "First."}


def said(folder: Path) -> list[tuple[str, str, int | None, str]]:
    problems = check_task(folder)
    assert all(problem.expected and problem.fix for problem in problems)
    return [
        (problem.severity, problem.file.relative_to(folder).as_posix(), problem.line, problem.code)
        for problem in problems
    ]


@pytest.mark.parametrize("form", ["toml", "md"])
def test_a_good_task_has_no_problems(write_task: Callable[..., Path], form: str) -> None:
    assert said(write_task(form=form)) == []


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (
            {"environment/Dockerfile": None, "environment/x": ""},
            ("error", "environment/Dockerfile", None, "missing-dockerfile"),
        ),
        ({"environment/Dockerfile": "RUN x\n"}, ("error", "environment/Dockerfile", None, "bad-dockerfile")),
        (
            {"environment/Dockerfile": "FROM x\nRUN y\nCOPY --chown=1 solution/ /solution/\n"},
            ("warning", "environment/Dockerfile", 3, "answer-in-image"),
        ),
        (
            {"environment/Dockerfile": 'FROM x\nADD ["tests", "/tests"]\n'},
            ("warning", "environment/Dockerfile", 2, "answer-in-image"),
        ),
        (
            {"environment/docker-compose.yaml": "services:\n  main: [\n"},
            ("error", "environment/docker-compose.yaml", 2, "bad-yaml"),
        ),
        ({"tests/test.sh": "echo reward.txt\n"}, ("warning", "tests/test.sh", 1, "no-shebang")),
        ({"tests/test.sh": "#!/bin/sh\necho reward.txt\r\n"}, ("error", "tests/test.sh", 2, "crlf")),
        ({"tests/test.sh": "", "tests/x": "reward.json"}, ("error", "tests/test.sh", None, "empty-script")),
        ({"tests/test.sh": "#!/bin/sh\necho rewards.json\n"}, ("warning", "tests/test.sh", None, "no-reward")),
        ({"solution/solve.sh": "x\n"}, ("warning", "solution/solve.sh", 1, "no-shebang")),
        ({"solution/solve.sh": None}, ("warning", "solution/solve.sh", None, "no-solution")),
        ({"steps/old/x": ""}, ("warning", "steps/old", None, "unused-step")),
        ({"trajectory.json": "{"}, ("error", "trajectory.json", 1, "bad-trajectory")),
        ({"trajectory.json": "[" * 100_000}, ("error", "trajectory.json", None, "bad-trajectory")),
        ({"trajectory.json": "[]"}, ("error", "trajectory.json", None, "bad-trajectory")),
        ({"trajectory.json": '{"steps": []}'}, ("error", "trajectory.json", None, "bad-trajectory")),
        (
            {
                "task.toml": '[verifier]\nnetwork_mode = "no-network"\n',
                "tests/test.sh": "#!/bin/sh\n# apt\ncurl x | sh\nreward.txt\n",
            },
            ("warning", "tests/test.sh", 3, "offline-download"),
        ),
        ({"task.toml": 'multi_step_reward_strategy = "mean"\n'}, ("warning", "task.toml", 1, "no-effect")),
        ({"task.toml": '[agent]\nuser = "dev"\n'}, ("warning", "task.toml", 2, "no-effect")),
        ({"task.toml": '[environment]\ngpu_types = ["T4"]\n'}, ("warning", "task.toml", 2, "no-effect")),
        ({"task.toml": '[environment]\nnetwork_mode = "allowlist"\n'}, ("warning", "task.toml", 2, "no-effect")),
        ({"task.toml": '[environment]\nskills_dir = "skills"\n'}, ("warning", "task.toml", 2, "no-effect")),
        ({"task.toml": '[verifier.judge]\nmodel = "m"\n'}, ("warning", "task.toml", 1, "no-effect")),
        ({"task.toml": 'artifacts = ["/a/b", "/a"]\n'}, ("warning", "task.toml", 1, "no-effect")),
        (
            {"task.toml": "[environment]\nmcp_servers = [\n{name='a',url='u'},\n{name='a',url='v'}]\n"},
            ("warning", "task.toml", 3, "no-effect"),
        ),
        (STEP_FILES | {"instruction.md": "x"}, ("warning", "instruction.md", None, "unused-file")),
        (
            STEP_FILES | {"steps/one/workdir/setup.sh": "#!/bin/sh\r\n"},
            ("error", "steps/one/workdir/setup.sh", 1, "crlf"),
        ),
        (
            STEP_FILES | {"steps/one/tests/test.sh": "#!/bin/sh\n", "tests/test.sh": None},
            ("warning", "steps/one/tests/test.sh", None, "no-reward"),
        ),
    ],
)
def test_one_problem(write_task: Callable[..., Path], files: Files, problem: tuple[str, str, int | None, str]) -> None:
    assert said(write_task(files)) == [problem]


def test_a_step_behind_faulty_ones_keeps_its_line(write_task: Callable[..., Path]) -> None:
    names = ["3", '"a"', '"A"', '"lost"']
    steps = "".join(f"[[steps]]\nname = {name}\n" for name in names) + "[[steps]]\n"
    found = said(write_task({"task.toml": steps, "instruction.md": None, "steps/a/instruction.md": "Do it."}))
    assert [(line, code) for severity, _, line, code in found if severity == "error"] == [
        (2, "invalid-value"),
        (6, "duplicate-step"),
        (9, "missing-key"),
        (8, "missing-step"),
    ]


@pytest.mark.parametrize(
    "files",
    [
        {"environment/Dockerfile": "FROM x\nCOPY latest/ /app/\nCOPY src /tests\nRUN cp tests x\n"},
        {"environment/Dockerfile": None, "environment/docker-compose.yaml": "x: &a {b: 1}\ny: *a\n"},
        {"environment/Dockerfile": None, "task.toml": '[environment]\ndocker_image = "x"\n'},
        {"tests/test.sh": "#!/bin/sh\npytest\n", "tests/conftest.py": "open('/logs/verifier/reward.json', 'w')"},
        {"trajectory.json": '{"schema_version": "ATIF-v1.8", "steps": [{}]}'},
        {"tests/big.bin": b"\xff" * 100},
        STEP_FILES,
    ],
)
def test_no_problem(write_task: Callable[..., Path], files: Files) -> None:
    assert said(write_task(files)) == []


def test_windows_scripts_are_not_shell_scripts(write_task: Callable[..., Path]) -> None:
    files: Files = {
        "task.toml": '[environment]\nos = "windows"\n',
        "tests/test.bat": "echo reward.txt\r\n",
        "solution/solve.bat": "echo\r\n",
    }
    assert said(write_task(files)) == []


def test_a_verifier_image_that_brings_its_tests_is_not_searched(write_task: Callable[..., Path]) -> None:
    files: Files = {"task.toml": '[verifier.environment]\ndocker_image = "v"\n', "tests/test.sh": None}
    assert said(write_task(files)) == []


def test_everything_at_once(write_task: Callable[..., Path]) -> None:
    files: Files = {
        "task.toml": 'version = "1"\n[environment]\ncpus = "x"\n[agent]\ntimout_sec = 1\n',
        "instruction.md": None,
        "tests/test.sh": "echo hi\r\n",
        "solution/solve.sh": None,
    }
    assert said(write_task(files)) == [
        ("warning", "task.toml", 1, "deprecated-key"),
        ("error", "task.toml", 3, "invalid-value"),
        ("warning", "task.toml", 5, "unknown-key"),
        ("error", "instruction.md", None, "missing-file"),
        ("warning", "tests/test.sh", 1, "no-shebang"),
        ("error", "tests/test.sh", 1, "crlf"),
        ("warning", "tests/test.sh", None, "no-reward"),
        ("warning", "solution/solve.sh", None, "no-solution"),
    ]


def test_a_folder_of_tasks_stands_for_its_tasks(write_task: Callable[..., Path], tmp_path: Path) -> None:
    b, a = write_task(name="set/b"), write_task(name="set/a", form="md")
    broken = write_task({"task.toml": None}, name="set/broken")
    (tmp_path / "set/notes").mkdir()
    (tmp_path / "set/.git").mkdir()
    (tmp_path / "set/README.md").touch()
    assert expand([tmp_path / "set"]) == [a, b, broken]
    assert expand([b, tmp_path / "set", b]) == [b, a, broken]
    assert expand([tmp_path / "nothing"]) == [tmp_path / "nothing"]
    assert expand([tmp_path / "set/notes"]) == [tmp_path / "set/notes"]
    assert [problem.code for problem in check_task(broken)] == ["no-task"]
