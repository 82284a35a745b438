"""Real agents from npm and PyPI solve a real task in a real sandbox, with a scripted model as their provider.

Each runs as the sandbox user, from its read-only bundle, in two turns: the second request to the model must hold the
first turn, which shows that the session kept its context.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import benchflow as bf
from benchflow.gateway.ledger import read_exchanges
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.scene import Scene
from benchflow.sandbox.registry import backends_in_use, get_backend
from benchflow.testing.model_server import ModelServer, Run, Say

TASK = Path(__file__).parents[2] / "examples" / "tasks" / "write-a-file"
KEY = "sk-planted-0123456789"
# Solves the task only if the key is nowhere in the sandbox. The pattern does not match itself, because agents keep what
# they ran; some refuse command substitution.
SOLVE = (
    "if grep -rqs 'sk-planted[-]0123456789' /proc/[0-9]*/environ ~; then echo leaked;"
    " else printf 'Hello from the sandbox!\\n' > /app/greeting.txt; fi"
)
SECOND = "Now look at what you did and say whether it is right."

WIRES = {
    "anthropic": ("anthropic/claude-haiku-4-5", {"ANTHROPIC_API_KEY": KEY}, "ANTHROPIC_BASE_URL", ""),
    "openai": ("openai/gpt-5.5", {"OPENAI_API_KEY": KEY}, "OPENAI_BASE_URL", "/v1"),
    "gemini": ("gemini/gemini-2.5-flash", {"GEMINI_API_KEY": KEY}, "GEMINI_BASE_URL", ""),
}
AGENTS = {
    "claude-agent-acp": "anthropic",
    "codex-acp": "openai",
    "gemini": "gemini",
    "opencode": "openai",
    "pi-acp": "openai",
    "openclaw": "openai",
    "openhands": "openai",
    "goose": "openai",
    "acpx/goose": "openai",
}


CRASH = "Gateway disconnected: 1006"
"""What OpenClaw says when the gateway process that it brings along has died, as it does at times. It is asked again."""

ATTEMPTS = 5


async def solve(
    agent: str, backend: str, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[bf.RolloutResult, list[str]]:
    for _ in range(ATTEMPTS):
        result, turns = await solve_once(agent, backend, jobs, monkeypatch)
        if result.error is None or CRASH not in result.error.message:
            break
    return result, turns


async def solve_once(
    agent: str, backend: str, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[bf.RolloutResult, list[str]]:
    model, keys, base_url, path = WIRES[AGENTS[agent]]
    async with ModelServer([Run(SOLVE), Say("It is written."), Say("It is right.")]) as server:
        for name, value in keys.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(base_url, server.url + path)
        config = RolloutConfig(
            task_path=TASK,
            scenes=[Scene.single(agent, model, prompts=[None, SECOND])],
            environment=backend,
            jobs_dir=jobs,
            agent_timeout=300,
        )
        result = await bf.run(config)
        return result, [request.text for request in server.turns]


def check(result: bf.RolloutResult, turns: list[str]) -> None:
    assert result.error is None, result.error
    assert result.passed, result.rewards
    assert result.n_tool_calls >= 1
    assert SECOND in turns[-1]
    assert "Create the file" in turns[-1], "the first turn is not in the second one's request"
    ledger = result.rollout_dir / "trajectory" / "llm_trajectory.jsonl"
    assert len(list(read_exchanges(ledger))) >= len(turns)
    assert result.usage.input_tokens
    kinds = {event["type"] for event in result.trajectory}
    assert {"prompt", "message", "tool_call", "stop"} <= kinds
    prompts = json.loads((result.rollout_dir / "prompts.json").read_text())
    assert [prompt["prompt"] for prompt in prompts][1] == SECOND
    for file in result.rollout_dir.rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes(), f"the key is in {file}"


async def check_replay(result: bf.RolloutResult) -> None:
    """Without a provider and without a key, the recording gives the same reward."""
    environ = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    command = ["replay", str(result.rollout_dir), "--json", "--jobs-dir", str(result.rollout_dir.parent / "replays")]
    for _ in range(ATTEMPTS):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchflow.cli.app", *command, env=environ, stdout=subprocess.PIPE
        )
        said, _ = await process.communicate()
        again = json.loads(said)
        if CRASH not in str(again["error"]):
            break
    assert (again["difference"], again["error"], process.returncode) == (None, None, 0)
    assert again["rewards"] == again["recorded_rewards"] == result.rewards
    assert again["provider_requests"] == 0
    labels = json.loads((Path(again["rollout_dir"]) / "result.json").read_text())["labels"]
    assert labels == {"replay_of": str(result.rollout_dir)}


@pytest.mark.needs("local")
@pytest.mark.parametrize("agent", AGENTS)
async def test_agent_in_the_local_sandbox_and_again_from_its_recording(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, turns = await solve(agent, "local", tmp_path, monkeypatch)
    check(result, turns)
    await check_replay(result)
    async with backends_in_use():
        assert not [info for info in await get_backend("local").list() if info.rollout == result.rollout_dir.name]


@pytest.mark.needs("docker")
async def test_agent_in_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, turns = await solve("goose", "docker", tmp_path, monkeypatch)
    check(result, turns)
