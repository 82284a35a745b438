"""The users' own command lines, run as they are written, one after the other in one folder."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from benchflow.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.needs("local")

RUNS = """
benchflow run -t path/to/task -a claude-agent-acp -e daytona
benchflow job -t .ref/terminal-bench-2 -e daytona -c 64
benchflow run -t task/ -a claude-agent-acp -m claude-haiku-4-5-20251001 -e daytona
benchflow job -t tasks/ -a claude-agent-acp -c 64 -e daytona --retries 1
benchflow eval -t tasks/ --skills-dir skills/ -a claude-agent-acp -e daytona
benchflow run -t task/ -a pi-acp -e daytona
bench eval create -t your-task -a gemini
"""
LOOKS = """
benchflow agents # list registered agents
benchflow metrics jobs/
benchflow metrics jobs/tb2/
benchflow tasks init my-task # scaffold a new task directory
benchflow tasks check tasks/my-task/ # validate task structure
"""


def run(line: str) -> str:
    done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
    assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception}"
    return done.stdout


def prepare(workplace: Path) -> None:
    """The other tasks, agents and skills that the lines name."""
    solved = workplace / "tasks" / "X"
    for other in ("task", "your-task", ".ref/terminal-bench-2/one"):
        shutil.copytree(solved, workplace / other)
    solution = workplace / ".ref" / "terminal-bench-2" / "one" / "solution"
    solution.mkdir()
    (solution / "solve.sh").write_text("#!/bin/sh\ntrue\n")
    skill = workplace / "skills" / "counting"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: counting\ndescription: How to count.\n---\nOne, two.\n")
    agents = workplace / "config" / "benchflow" / "agents"
    agent = (agents / "gemini.toml").read_text()
    for name in ("claude-agent-acp", "pi-acp"):
        launched = agent.replace('"gemini"', f'"{name}"')
        (agents / f"{name}.toml").write_text(f'{launched}\n[skills]\nhome = [".{name}/skills"]\n')


def test_commands_run_as_written(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(workplace)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{workplace}/no.sock")
    scores = [re.findall("^Score: .*$", run(line), re.MULTILINE) for line in RUNS.strip().splitlines()]
    assert scores == [["Score: 1/1"]] * 3 + [["Score: 2/2"]] * 2 + [["Score: 1/1"]] * 2
    next((workplace / "jobs").iterdir()).rename(workplace / "jobs" / "tb2")
    for line in LOOKS.strip().splitlines():
        assert run(line)
    assert json.loads(run("benchflow metrics jobs/tb2/ --json"))
    assert (workplace / "my-task" / "task.toml").is_file()
