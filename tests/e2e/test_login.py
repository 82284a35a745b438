"""A login stays outside the sandbox where its agent can be pointed elsewhere; real agents, a scripted provider.

Any other goes to the agent's home, for its user alone, and nowhere else.
"""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import benchflow as bf
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.scene import Scene
from benchflow.testing.model_server import ModelServer, Run, Say

if TYPE_CHECKING:
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
    assert any("by itself; usage is its own report" in note for note in result.notes)
    for file in result.rollout_dir.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes()


TASK = Path(__file__).parents[2] / "examples" / "tasks" / "write-a-file"
TOKEN = "planted-token-0123456789"
# Solves the task only if the token is nowhere in the sandbox. The pattern does not match itself.
SOLVE = (
    "if grep -rqs 'planted-token[-]0123456789' /proc/[0-9]*/environ ~; then echo leaked;"
    " else printf 'Hello from the sandbox!\\n' > /app/greeting.txt; fi"
)


def codex_login() -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 1e6}).encode()).decode().rstrip("=")
    tokens = {"access_token": f"e30.{claims}.{TOKEN}", "refresh_token": TOKEN, "account_id": "acct-1"}
    return json.dumps({"auth_mode": "chatgpt", "tokens": tokens})


async def solve(
    agent: str, model: str, jobs: Path, monkeypatch: pytest.MonkeyPatch, base_url: str
) -> tuple[bf.RolloutResult, list[dict[str, str]]]:
    """The result, and the headers of every request for an answer that the provider saw."""
    async with ModelServer([Run(SOLVE), Say("It is written.")]) as server:
        monkeypatch.setenv(base_url, server.url + ("/v1" if base_url == "CHATGPT_BASE_URL" else ""))
        result = await bf.run(
            RolloutConfig(
                task_path=TASK,
                scenes=[Scene.single(agent, model)],
                environment="local",
                jobs_dir=jobs,
                agent_timeout=300,
            )
        )
        return result, [{name.lower(): value for name, value in turn.headers.items()} for turn in server.turns]


def check_held_outside(result: bf.RolloutResult) -> None:
    assert result.error is None, result.error
    assert result.passed, result.rewards
    assert result.usage.input_tokens
    assert any("uses a login" in note and "through the gateway" in note for note in result.notes)
    for file in result.rollout_dir.rglob("*"):
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes(), f"the token is in {file}"


@pytest.mark.needs("local")
async def test_a_token_of_claude_stays_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", TOKEN)
    result, seen = await solve("claude", "claude-haiku-4-5", tmp_path, monkeypatch, "ANTHROPIC_BASE_URL")
    check_held_outside(result)
    assert {headers["authorization"] for headers in seen} == {f"Bearer {TOKEN}"}
    assert all("x-api-key" not in headers for headers in seen)
    assert all("oauth" in headers["anthropic-beta"] for headers in seen), "the agent must know that it is logged in"


@pytest.mark.needs("local")
async def test_a_login_of_codex_stays_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME", f"{os.environ['HOME']}/.cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    login = tmp_path / "home" / ".codex" / "auth.json"
    login.parent.mkdir(parents=True)
    login.write_text(codex_login())
    result, seen = await solve("codex", "gpt-5.5", tmp_path / "jobs", monkeypatch, "CHATGPT_BASE_URL")
    check_held_outside(result)
    assert all(headers["authorization"].endswith(TOKEN) for headers in seen)
    assert {headers["chatgpt-account-id"] for headers in seen} == {"acct-1"}


@pytest.mark.needs("local")
async def test_a_key_that_is_given_to_the_agent_stays_outside_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-given-to-the-agent-4711"
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with ModelServer([Run("env; cat /proc/*/environ"), Say("Looked.")]) as server:
        config = RolloutConfig(
            task_path=TASK,
            scenes=[Scene.single("goose", "openai/gpt-5.5")],
            environment="local",
            jobs_dir=tmp_path,
            agent_env={"OPENAI_API_KEY": key, "OPENAI_BASE_URL": f"{server.url}/v1", "HARMLESS": "yes"},
        )
        result = await bf.run(config)
        asked = server.turns
    assert result.error is None, result.error
    assert "HARMLESS=yes" in asked[-1].text
    assert key not in asked[-1].text
    assert key in str(asked[-1].headers)
    assert files_with(key, tmp_path) == []


def files_with(text: str, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]
