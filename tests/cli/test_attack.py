"""`bench tasks attack` on a verifier that runs what the agent left, and on one that does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("local")

BENCH = Path(sys.executable).parent / "bench"
WEAK = "#!/bin/sh\necho 0 > /logs/verifier/reward.txt\n. /app/.profile\n"
SOUND = "#!/bin/sh\ncmp /app/answer.txt /tests/answer.txt\necho $((! $?)) > /logs/verifier/reward.txt\n"


def make_task(folder: Path, test: str) -> Path:
    files = {
        "task.toml": '[environment]\nnetwork_mode = "no-network"\n',
        "instruction.md": "Write the answer.\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\nRUN touch .profile\n",
        "tests/test.sh": test,
        "tests/answer.txt": "42\n",
        "solution/solve.sh": "#!/bin/sh\necho 42 > answer.txt\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def attack(task: Path, *options: str) -> subprocess.CompletedProcess[str]:
    argv = [str(BENCH), "tasks", "attack", str(task), "-e", "local", "--only", "shell-startup-files", *options]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_a_verifier_that_runs_the_agents_files_is_told_so(tmp_path: Path) -> None:
    done = attack(make_task(tmp_path, WEAK), "--json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["fallen"] == ["shell-startup-files"]
    (cheat,) = document["cheats"]
    assert cheat["levels"]["fork"]["paid"]
    assert list(cheat["levels"]) == ["fork", "fresh", "in-place"]


def test_a_sound_verifier_falls_for_nothing(tmp_path: Path) -> None:
    done = attack(make_task(tmp_path, SOUND))
    assert done.returncode == 0, done.stderr
    assert "0 of 1 cheats pay where we score" in done.stdout


def test_a_pass_in_doubt_is_told_from_a_paid_one(tmp_path: Path) -> None:
    done = attack(make_task(tmp_path, SOUND), "--root", "--only", "always-equal")
    assert done.returncode == 0, done.stderr
    assert "calls suspect" in done.stdout


def test_a_task_that_passes_untouched_is_said_first(tmp_path: Path) -> None:
    done = attack(make_task(tmp_path, "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n"))
    assert done.returncode == 1
    assert "without any work at all it passes" in done.stderr


def test_an_unknown_cheat_names_the_known_ones(tmp_path: Path) -> None:
    done = attack(tmp_path, "--only", "no-such-*")
    assert done.returncode == 1
    assert "python-pth" in done.stderr
