"""What a job may spend, and what happens at the limit: real sandboxes, agents that call a scripted model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.job.callers import caller

import benchflow as bf
from benchflow import Job, JobConfig, Role, RolloutConfig, Scene, Turn
from benchflow.gateway.ledger import read_exchanges
from benchflow.gateway.litellm_bridge.translator import LiteLLMTranslator
from benchflow.gateway.price import price
from benchflow.gateway.tokens import Tokens
from benchflow.job.store import read_rows
from benchflow.testing.model import wire
from benchflow.testing.model_server import ModelServer, Say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.job.conftest import MakeTask

    from benchflow.job.plan import Measurement
    from benchflow.job.scheduler import Work
    from benchflow.job.summary import JobResult

pytestmark = [pytest.mark.needs("local"), pytest.mark.usefixtures("local")]

MODEL = "anthropic/claude-sonnet-4-6"
READ = 20_000
COST = float(
    price("anthropic", "claude-sonnet-4-6", Tokens(input=READ, cached=wire.CACHED_TOKENS, output=wire.OUTPUT_TOKENS))
    or 0
)
"""What an answer costs: about six cents."""


class Watch:
    """Keeps the events of a job."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def job_event(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def watch(self, work: Work, measurement: Measurement) -> None:
        return None

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == name]


@pytest.fixture
async def model(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelServer]:
    monkeypatch.setattr(wire, "INPUT_TOKENS", READ)
    async with ModelServer([Say("hello")]) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-planted-000")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        yield server


@pytest.fixture
def task(make_task: MakeTask) -> Path:
    return make_task("a")


def config(agent: str | list[str], **settings: Any) -> JobConfig:
    return JobConfig(agent=agent, model=MODEL, environment="local", **settings)


def result_of(row: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((row.rollout_dir / "result.json").read_text())
    return document


async def test_a_job_of_one_dollar(model: ModelServer, task: Path, tmp_path: Path) -> None:
    settings = config(caller(tmp_path, "20"), attempts=4, concurrency=3, max_job_cost=1.0)
    watch = Watch()
    result = await Job(task, tmp_path / "jobs", settings, job_name="x", observer=watch).run()
    assert result.state == "halted"
    assert "the job's budget is used up" in result.message
    assert "--max-job-cost" in result.message
    assert len(watch.named("halted")) == 1
    assert result.spent is not None
    spent = float(str(result.spent["cost_usd"]))
    assert 1.0 <= spent <= 1.0 + 3 * COST, "no more than the budget and one request of each that ran"
    assert spent == pytest.approx(len(model.turns) * COST)
    cut = [row for row in result.rollouts if row.cut_by_job]
    assert cut == list(result.rollouts)
    assert 1 <= len(cut) <= 3, "nothing was started after the money was gone"
    for row in cut:
        document = result_of(row)
        assert document["limit"] == {"scope": "job", "kind": "cost", "limit": 1.0}
        assert document["rewards"] == {"reward": 0.0}, "it is scored as it stands"
        assert any("cut off" in note for note in document["notes"])
        assert not row.scored, "where the money ran out says nothing about the agent"
    summary = json.loads((tmp_path / "jobs" / "x" / "summary.json").read_text())
    assert summary["state"] == "halted"
    assert summary["spent"]["requests"] == len(model.turns)
    assert summary["usage"]["prices"].startswith("genai-prices ")

    asked = len(model.turns)
    again = await Job.resume(tmp_path / "jobs" / "x").run()
    assert (again.state, len(model.turns)) == ("halted", asked), "what was spent before counts"
    final = await Job.resume(tmp_path / "jobs" / "x", limits={"max_job_cost": 100.0}).run()
    assert (final.state, final.passed, final.total) == ("finished", 4, 4)
    assert final.spent is not None
    assert final.spent["requests"] == len(model.turns)


async def test_what_a_killed_rollout_had_spent_counts(model: ModelServer, task: Path, tmp_path: Path) -> None:
    first = await Job(task, tmp_path / "jobs", config(caller(tmp_path, "3")), job_name="x").run()
    (first.rollouts[0].rollout_dir / "result.json").unlink()
    halted = await Job.resume(tmp_path / "jobs" / "x", limits={"max_job_cost": 2.5 * COST}).run()
    assert (halted.state, halted.spent, len(model.turns)) == ("halted", first.spent, 3)
    final = await Job.resume(tmp_path / "jobs" / "x", limits={"max_job_cost": 100.0}).run()
    assert (final.state, final.passed) == ("finished", 1)
    assert final.spent is not None
    assert final.spent["requests"] == len(model.turns) == 6


async def test_a_rollout_of_few_tokens(model: ModelServer, task: Path, tmp_path: Path) -> None:
    """Its own budget is a part of what it is given: it is scored, and done again when it gets more."""
    agents = [caller(tmp_path, "1"), caller(tmp_path, "9"), caller(tmp_path, "9", "fragile")]
    settings = config(agents, max_tokens=2 * READ, concurrency=3)
    first = await Job(task, tmp_path / "jobs", settings, job_name="x").run()
    assert first.state == "finished"
    assert (first.scores.passed, first.scores.scored, first.scores.lost) == (1, 3, 0)
    cut = [row for row in first.rollouts if row.limit]
    assert {row.agent for row in cut} == {"caller-9", "caller-9-fragile"}
    for row in cut:
        assert row.limit == {"scope": "rollout", "kind": "tokens", "limit": 2 * READ}
        assert row.error is not None
        assert (row.error.kind, row.error.retryable) == ("BudgetSpent", False)
        assert row.usage["requests"] == 2
        assert "402" in (row.rollout_dir / "trajectory" / "acp_trajectory.jsonl").read_text()
    asked = len(model.turns)
    assert (await Job.resume(tmp_path / "jobs" / "x").run()).passed == 1
    assert len(model.turns) == asked
    more = config(agents, max_tokens=50 * READ, concurrency=3)
    final = await Job(task, tmp_path / "jobs", more, job_name="x").run()
    assert (final.passed, final.scores.lost) == (3, 0)
    assert len(model.turns) == asked + 18, "what was not cut off is kept"
    assert len(list(read_rows(tmp_path / "jobs" / "x"))) == 5


async def test_an_agent_that_does_not_take_no_for_an_answer(
    model: ModelServer, task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchflow.rollout.watch.REFUSED_GRACE", 0.2)
    monkeypatch.setattr("benchflow.acp.session.CANCEL_GRACE", 0.2)
    settings = config(caller(tmp_path, "9", "stubborn"), max_cost=COST / 2)
    result = await Job(task, tmp_path / "jobs", settings).run()
    (row,) = result.rollouts
    assert row.limit is not None
    assert row.limit["kind"] == "cost"
    assert row.scored


async def test_every_rollout_and_the_job_have_their_ledger(model: ModelServer, task: Path, tmp_path: Path) -> None:
    result = await Job(task, tmp_path / "jobs", config(caller(tmp_path, "3"), attempts=4, concurrency=4)).run()
    assert result.passed == 4
    for row in result.rollouts:
        used = result_of(row)["usage"]
        assert (used["input_tokens"], used["output_tokens"], used["requests"]) == (3 * READ, 51, 3)
        assert (used["cached_tokens"], used["cache_write_tokens"], used["retries"]) == (192, 0, 0)
        assert used["cost_usd"] == used["priced_usd"] == pytest.approx(3 * COST)
        assert used["waiting_seconds"] > 0
        timing = json.loads((row.rollout_dir / "timing.json").read_text())
        assert timing["waiting"] == used["waiting_seconds"] <= timing["agent_execution"]
        exchanges = list(read_exchanges(row.rollout_dir / "trajectory" / "llm_trajectory.jsonl"))
        assert [one["id"] for one in exchanges] == [1, 2, 3]
    usage = json.loads((result.job_dir / "summary.json").read_text())["usage"]
    assert (usage["requests"], usage["input_tokens"], usage["cost_usd"]) == (12, 12 * READ, pytest.approx(12 * COST))


async def test_a_model_without_a_price_is_unknown(model: ModelServer, task: Path, tmp_path: Path) -> None:
    settings = JobConfig(agent=caller(tmp_path, "2"), model="anthropic/secret-1", environment="local")
    result = await Job(task, tmp_path / "jobs", settings).run()
    assert result.usage["cost_usd"] is None
    assert (result.usage["input_tokens"], result.usage["unpriced_requests"]) == (2 * READ, 2)
    assert result_of(result.rollouts[0])["usage"]["cost_usd"] is None


async def test_rollouts_of_two_providers_do_not_mix(
    model: ModelServer, task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both go through the one gateway of the job, each to its own provider with its own key."""
    async with ModelServer([Say("there")]) as other:
        monkeypatch.setenv("AZURE_API_KEY", "sk-planted-111")
        monkeypatch.setenv("AZURE_API_ENDPOINT", other.url)
        models = [MODEL, "azure-foundry-anthropic/claude-haiku-4-5"]
        settings = JobConfig(agent=caller(tmp_path, "3"), model=models, environment="local", attempts=2, concurrency=4)
        result: JobResult = await Job(task, tmp_path / "jobs", settings).run()
        assert result.passed == 4
        for server, key in ((model, "sk-planted-000"), (other, "sk-planted-111")):
            assert {request.headers["x-api-key"] for request in server.turns} == {key}
            assert len(server.turns) == 6
    for row in result.rollouts:
        exchanges = list(read_exchanges(row.rollout_dir / "trajectory" / "llm_trajectory.jsonl"))
        assert {f"{one['provider']}/{one['model']}" for one in exchanges} == {row.model}
        assert len(exchanges) == row.usage["requests"] == 3


async def test_the_roles_of_a_rollout_share_its_budget(model: ModelServer, task: Path, tmp_path: Path) -> None:
    agent = caller(tmp_path, "2")
    roles = [Role(name, agent, MODEL) for name in ("one", "two")]
    scene = Scene(roles, [Turn("one"), Turn("two")])
    asked = RolloutConfig(
        task_path=task, scenes=[scene], environment="local", jobs_dir=tmp_path / "jobs", max_tokens=3 * READ - 1
    )
    result = await bf.run(asked)
    assert len(model.turns) == 3
    assert result.usage.requests == 3
    assert result.limit == {"scope": "rollout", "kind": "tokens", "limit": 3 * READ - 1}
    assert result.rewards == {"reward": 1.0}, "the first role had done it"


@pytest.mark.parametrize(("allowed", "requests"), [((), 0), (("claude-*",), 1)])
async def test_a_model_that_was_not_configured(
    allowed: tuple[str, ...], requests: int, model: ModelServer, task: Path, tmp_path: Path
) -> None:
    """An alias that an agent resolves by itself is found out, and says what to do about it."""
    scene = Scene.single(caller(tmp_path, "1"), "anthropic/sonnet")
    asked = RolloutConfig(
        task_path=task,
        scenes=[scene],
        environment="local",
        jobs_dir=tmp_path / "jobs",
        agent_env={"MODEL": "claude-sonnet-4-6"},
        allow_models=allowed,
    )
    result = await bf.run(asked)
    assert len(model.turns) == requests
    if allowed:
        assert result.passed
        return
    assert result.error is not None
    assert (result.error.kind, result.rewards) == ("ModelRefused", None)
    assert "--allow-model" in result.error.message
    assert any("claude-sonnet-4-6 (1)" in note for note in result.notes)


@pytest.mark.needs("litellm")
async def test_one_translator_serves_the_whole_job(task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    start = LiteLLMTranslator._start

    async def count(self: LiteLLMTranslator) -> None:
        started.append(self)
        await start(self)

    monkeypatch.setattr(LiteLLMTranslator, "_start", count)
    async with ModelServer([Say("hello")]) as model:
        monkeypatch.setenv("GROQ_API_KEY", "sk-planted-222")
        monkeypatch.setenv("GROQ_BASE_URL", f"{model.url}/v1")
        agent = caller(tmp_path, "2", provider="groq")
        settings = JobConfig(agent=agent, model="groq/some-model", environment="local", attempts=3, concurrency=3)
        result = await Job(task, tmp_path / "jobs", settings).run()
        assert result.passed == 3, result.rollouts[0].error
        assert {request.dialect for request in model.turns} == {"chat"}
    assert len(started) == 1
