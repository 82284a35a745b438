"""A login of the host's own command line goes to the agent's home, for its user alone, and nowhere else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import benchflow as bf
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.scene import Scene

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import MakeTask

AGENT = """
name = "with-login"
dialect = "anthropic"

[launch]
command = ["python3", "/opt/agents.py", "echo"]

[[credentials]]
provider = "anthropic"
file = ".with-login/token.json"
login = "with-login login"
"""
TEST = """#!/bin/sh
[ "$(stat -c '%a %U' /home/agent/.with-login/token.json)" = "600 agent" ] && r=1 || r=0
echo $r > /logs/verifier/reward.txt
"""


@pytest.mark.needs("local")
async def test_login_file(make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = tmp_path / "agent.toml"
    agent.write_text(AGENT)
    secret = "login-secret-123456"
    home = tmp_path / "home"
    (home / ".with-login").mkdir(parents=True)
    (home / ".with-login" / "token.json").write_text(secret)
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME", f"{os.environ['HOME']}/.cache"))
    monkeypatch.setenv("HOME", str(home))
    task = make_task(files={"tests/test.sh": TEST})
    result = await bf.run(
        RolloutConfig(
            task_path=task, scenes=[Scene.single(str(agent))], environment="local", jobs_dir=tmp_path / "jobs"
        )
    )
    assert result.error is None, result.error
    assert result.passed
    assert any("by itself" in note for note in result.notes)
    for file in result.rollout_dir.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes()
