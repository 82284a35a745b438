"""Real agents in a real sandbox through the gateway: in their own dialect, replayed, translated, and out of money."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

import benchflow as bf
from benchflow.gateway.account import Account
from benchflow.gateway.budget import Limits
from benchflow.gateway.ledger import Ledger, read_exchanges
from benchflow.gateway.litellm_bridge.translator import LiteLLMTranslator
from benchflow.gateway.replay import Replayer
from benchflow.gateway.server import Gateway
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.scene import Scene
from benchflow.testing.model_server import ModelServer, Run, Say, Step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchflow.agent.spec import Dialect
    from benchflow.gateway.admission import Pass

TASK = Path(__file__).parents[2] / "examples" / "tasks" / "write-a-file"
SCRIPT: list[Step] = [
    Run("printf 'Hello from the sandbox!\\n' > /app/greeting.txt"),
    Say("It is written."),
    Say("It is right."),
]
KEY = "sk-planted-behind-the-gateway"
ANTHROPIC = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "anthropic/claude-haiku-4-5", "")
OPENAI = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "openai/gpt-5.5", "/v1")
WIRES = {"claude-agent-acp": ANTHROPIC, "codex-acp": OPENAI, "goose": OPENAI}

pytestmark = pytest.mark.needs("local")


@asynccontextmanager
async def provider() -> AsyncIterator[ModelServer]:
    async with ModelServer(SCRIPT) as model:
        yield model


def account(url: str, *dialects: Dialect) -> Account:
    name, path = ("anthropic", "") if dialects[0] == "anthropic" else ("openai", "/v1")
    return Account(name, f"{url}{path}", SecretStr(KEY), dialects)


async def solve(agent: str, pass_: Pass, jobs: Path, monkeypatch: pytest.MonkeyPatch) -> bf.RolloutResult:
    """Run an agent whose provider, as far as it can tell, is the pass."""
    key, base_url, model, path = WIRES[agent]
    async with await asyncio.start_server(pass_.serve, "127.0.0.1", 0) as door:
        monkeypatch.setenv(key, pass_.token)
        monkeypatch.setenv(base_url, f"http://127.0.0.1:{door.sockets[0].getsockname()[1]}{path}")
        prompts = [None, "Look again and say whether it is right."]
        scene = Scene.single(agent, model, prompts=prompts)
        config = RolloutConfig(task_path=TASK, scenes=[scene], environment="local", jobs_dir=jobs, agent_timeout=300)
        result = await bf.run(config)
        await pass_.close()
    return result


@pytest.mark.parametrize("agent", WIRES)
async def test_a_recorded_agent_runs_again_without_a_provider(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own: tuple[Dialect, ...] = ("anthropic",) if agent.startswith("claude") else ("openai-responses", "openai-chat")
    recorded, replayed = Ledger(tmp_path / "recorded.jsonl"), Ledger(tmp_path / "replayed.jsonl")
    async with provider() as model, Gateway() as gateway:
        pass_ = gateway.admit(account(model.url, *own), recorded)
        result = await solve(agent, pass_, tmp_path / "jobs", monkeypatch)
        assert result.passed, result.error
        assert pass_.usage.requests >= 3
        assert pass_.usage.cost
        assert pass_.waiting_seconds > 0
        asked = len(model.requests)
        replayer = Replayer.from_file(recorded.path)
        again = gateway.admit(account("http://127.0.0.1:9", *own), replayed, substitute=replayer)
        result = await solve(agent, again, tmp_path / "jobs", monkeypatch)
        assert again.tripped is None
        assert result.passed, result.error
        assert len(model.requests) == asked
        assert again.usage.cost == 0.0
    recorded.close()
    replayed.close()
    assert KEY not in recorded.path.read_text()


@pytest.mark.needs("litellm")
@pytest.mark.parametrize(("agent", "dialect"), [("claude-agent-acp", "openai-chat"), ("codex-acp", "anthropic")])
async def test_an_agent_on_a_provider_of_another_dialect(
    agent: str, dialect: Dialect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "l.jsonl")
    async with provider() as model, Gateway(translator=LiteLLMTranslator()) as gateway:
        pass_ = gateway.admit(account(model.url, dialect), ledger)
        result = await solve(agent, pass_, tmp_path / "jobs", monkeypatch)
        assert result.passed, result.error
        path = "/v1/messages" if dialect == "anthropic" else "/v1/chat/completions"
        assert {request.path for request in model.requests} == {path}
    ledger.close()
    assert pass_.usage.tokens.total >= 3 * 1018


async def test_an_agent_without_money_is_scored_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path / "l.jsonl")
    async with provider() as model, Gateway() as gateway:
        pass_ = gateway.admit(account(model.url, "anthropic"), ledger, Limits(max_tokens=1))
        result = await solve("claude-agent-acp", pass_, tmp_path / "jobs", monkeypatch)
    ledger.close()
    assert result.rewards is not None
    assert pass_.tripped is not None
    assert pass_.tripped.kind == "tokens"
    assert [one["status"] for one in read_exchanges(ledger.path)][-1] == 402
