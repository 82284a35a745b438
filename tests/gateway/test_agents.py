"""A real agent in a real sandbox whose gateway has no more money."""

from __future__ import annotations

from pathlib import Path

import pytest

import benchflow as bf
from benchflow.gateway.ledger import read_exchanges
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.scene import Scene
from benchflow.testing.model_server import ModelServer, Run, Say

TASK = Path(__file__).parents[2] / "examples" / "tasks" / "write-a-file"


@pytest.mark.needs("local")
async def test_an_agent_without_money_is_scored_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    solve = Run("printf 'Hello from the sandbox!\\n' > /app/greeting.txt")
    async with ModelServer([solve, Say("It is written.")]) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-planted-behind-the-gateway")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        scene = Scene.single("claude-agent-acp", "anthropic/claude-haiku-4-5")
        result = await bf.run(
            RolloutConfig(task_path=TASK, scenes=[scene], environment="local", jobs_dir=tmp_path, max_tokens=1)
        )
    assert result.rewards is not None
    assert result.limit == {"scope": "rollout", "kind": "tokens", "limit": 1}
    ledger = result.rollout_dir / "trajectory" / "llm_trajectory.jsonl"
    assert [one["status"] for one in read_exchanges(ledger)][-1] == 402
