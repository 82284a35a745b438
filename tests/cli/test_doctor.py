"""`bench doctor` on machines that lack things: every line is there, says what to do, and never says a secret."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PARTS = ["machine", "docker sandbox", "local sandbox", "credentials", "caches"]
SECRET = "sk-never-shown-5f1c"


class Machine:
    """A home, a working folder and a PATH of its own, without a Docker engine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools = root / "bin"
        self.tools.mkdir()
        self.env = {
            "PATH": str(self.tools),
            "HOME": str(root / "home"),
            "DOCKER_HOST": f"unix://{root}/no.sock",
            "NO_COLOR": "1",
        }

    def tool(self, name: str, script: str) -> None:
        (self.tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.tools / name).chmod(0o755)

    def doctor(self, *words: str, **env: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "benchflow.cli.app", "doctor", *words],
            capture_output=True,
            text=True,
            cwd=self.root,
            env={**self.env, **env},
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert SECRET not in done.stdout
        return done.stdout

    def found(self, part: str, **env: str) -> dict[str, dict[str, Any]]:
        return {check["name"]: check for check in json.loads(self.doctor("--json", **env))[part]}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_bare_machine_is_told_the_command_for_everything(machine: Machine) -> None:
    report = json.loads(machine.doctor("--json"))
    assert list(report) == PARTS
    missing = {check["name"]: check for checks in report.values() for check in checks if not check["ok"]}
    assert {"git", "node", "engine", "credentials"} <= set(missing)
    assert all(check["fix"] for check in missing.values())
    assert missing["git"]["fix"] == "apt-get install git"


def test_the_text_says_the_same(machine: Machine) -> None:
    lines = machine.doctor().splitlines()
    assert [line for line in lines if not line.startswith(" ")] == PARTS
    places = [number for number, line in enumerate(lines) if line.startswith("  missing")]
    assert len(places) >= 4
    assert all(lines[number + 1].strip().startswith("fix: ") for number in places)
    assert "\x1b" not in "".join(lines)


def test_tools_are_asked_for_their_version(machine: Machine) -> None:
    machine.tool("git", "echo git version 9.9")
    assert machine.found("machine")["git"]["detail"] == "git version 9.9"
    machine.tool("git", "exit 0")
    assert machine.found("machine")["git"]["ok"] is False


def test_credentials_are_named_wherever_they_are(machine: Machine) -> None:
    (machine.root / ".env").write_text(f"GEMINI_API_KEY={SECRET}\n")
    found = machine.found("credentials", OPENAI_API_KEY=SECRET, ANTHROPIC_API_KEY="")
    assert "codex-acp" in found["OPENAI_API_KEY"]["detail"]
    assert "gemini" in found["GEMINI_API_KEY"]["detail"]
    assert "ANTHROPIC_API_KEY" not in found
    assert "OPENAI_API_KEY" in machine.doctor(OPENAI_API_KEY=SECRET)


@pytest.mark.parametrize("file", [".env", "home/.config/benchflow/agents/mine.toml"])
def test_a_broken_file_is_a_finding_and_hides_no_other(machine: Machine, file: str) -> None:
    (machine.root / file).parent.mkdir(parents=True, exist_ok=True)
    (machine.root / file).write_bytes(b"\xff\xfe = [")
    report = json.loads(machine.doctor("--json"))
    assert list(report) == PARTS
    (only,) = report["credentials"]
    assert (only["ok"], file in only["detail"]) == (False, True)
    assert only["fix"]


def test_a_path_is_shown_as_it_is(machine: Machine) -> None:
    cache = machine.root / "[bold]cache[/]"
    (cache / "benchflow" / "agents").mkdir(parents=True)
    assert f"{cache}/benchflow: agents" in machine.doctor(XDG_CACHE_HOME=str(cache))
