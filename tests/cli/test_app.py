"""The face of the command line: what loads, what it prints, how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchflow.cli.app import COMMANDS

HEAVY = ("pydantic", "aiohttp", "aiodocker", "acp", "rich", "yaml", "tomlkit")
MODULE_BUDGET = 400
"""`bench --help` may import this many modules in all; a new heavy import shows up here."""


def bench(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-m", "benchflow.cli.app", *args],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        check=False,
    )


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_load_nothing_heavy(flag: str) -> None:
    code = (
        "import sys; sys.argv = ['bench', sys.argv[1]]\n"
        "from benchflow.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import json; print('\\n' + json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, flag], capture_output=True, text=True, check=True)
    modules = json.loads(done.stdout.splitlines()[-1])
    assert not {m.split(".")[0] for m in modules} & set(HEAVY)
    assert len(modules) < MODULE_BUDGET


def test_help_lists_every_command_with_examples() -> None:
    text = bench("--help").stdout
    assert all(f"  {name} " in text for name in COMMANDS)
    assert "Examples:" in text


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(name: str) -> None:
    done = bench(name, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout


def test_wrong_usage_exits_2_and_suggests() -> None:
    done = bench("task")
    assert done.returncode == 2
    assert "tasks" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["agent", "list"], ["agent", "list", "--json"]])
def test_an_output_without_room_is_said_and_a_closed_one_is_not_missed(words: list[str]) -> None:
    command = [sys.executable, "-m", "benchflow.cli.app", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: the output cannot be written: No space left on device\n")
    closed = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True, check=False)
    assert (closed.returncode, closed.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str) -> None:
    done = bench("--show-completion", shell)
    assert done.returncode == 0
    assert "bench" in done.stdout.lower() or "app" in done.stdout.lower()


@pytest.mark.parametrize(("words", "expected"), [("bench ta", "tasks"), ("bench tasks mi", "migrate")])
def test_completion_completes_commands(words: str, expected: str) -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("bench"))],
        capture_output=True,
        text=True,
        env={
            "_BENCH_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
            "PATH": "/usr/bin:/bin",
        },
        check=False,
    )
    assert expected in done.stdout, done.stderr
