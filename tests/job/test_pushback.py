"""Providers that push back, refuse for good, or do not answer: what a job makes of it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from pydantic import SecretStr
from tests.job.callers import caller
from tests.job.test_budget import Watch

from benchflow import Job, JobConfig, RetryConfig
from benchflow.gateway.account import Account
from benchflow.gateway.pace import Pace
from benchflow.gateway.server import Gateway
from benchflow.job.gate import Gate
from benchflow.job.host import Admission, Host
from benchflow.job.scheduler import Scheduler, Verdict, Work
from benchflow.testing.model_server import ModelServer, Say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from tests.job.conftest import MakeRow, MakeTask

    from benchflow.job.row import Row

MODEL = "anthropic/claude-sonnet-4-6"
ANSWER = {
    "type": "message",
    "model": "claude-sonnet-4-6",
    "content": [{"type": "text", "text": "hello"}],
    "usage": {"input_tokens": 10, "output_tokens": 2},
}

local = [pytest.mark.needs("local"), pytest.mark.usefixtures("local")]


@asynccontextmanager
async def provider(answer: Callable[[], Awaitable[web.Response]], patch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A provider that answers every request like this, in the place of Anthropic."""

    async def handler(request: web.BaseRequest) -> web.Response:
        await request.read()
        return await answer()

    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    patch.setenv("ANTHROPIC_API_KEY", "sk-planted-000")
    patch.setenv("ANTHROPIC_BASE_URL", f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        yield
    finally:
        await runner.cleanup()


def config(agent: str, **settings: Any) -> JobConfig:
    return JobConfig(agent=agent, model=MODEL, environment="local", **settings)


@pytest.mark.parametrize(("status", "kind"), [(401, "refused the key"), (404, "does not have the model")])
class TestFatal:
    pytestmark = local

    async def test_it_stops_the_job_once(
        self, status: int, kind: str, make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = 0

        async def refuse() -> web.Response:
            nonlocal asked
            asked += 1
            error = {"type": "error", "error": {"type": "x", "message": "no claude-sonnet-4-6 for you"}}
            return web.json_response(error, status=status)

        watch = Watch()
        settings = config(caller(tmp_path, "2", "fragile"), attempts=6, concurrency=2)
        async with provider(refuse, monkeypatch):
            job = Job(make_task("a"), tmp_path / "jobs", settings, job_name="x", observer=watch)
            result = await job.run()
        assert result.state == "halted"
        assert kind in result.message
        assert len(watch.named("halted")) == 1
        assert asked <= 2, "it is found out once, or by those that asked at the same time"
        assert len(result.rollouts) <= 4
        assert result.scores.scored == 0, "who could not ask was not measured"
        assert {row.error.kind for row in result.rollouts if row.error} == {"ModelRefused"}

        async with ModelServer([Say("hello")]) as model:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
            final = await Job.resume(tmp_path / "jobs" / "x").run()
        assert (final.state, final.passed) == ("finished", 6)


class TestBusy:
    pytestmark = local

    async def test_it_slows_everybody_down_and_fails_nobody(
        self, make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = refused = 0

        async def answer() -> web.Response:
            nonlocal asked, refused
            asked += 1
            if asked % 4 == 0:
                refused += 1
                error = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
                return web.json_response(error, status=529 if refused % 2 else 429, headers={"Retry-After": "0.05"})
            return web.json_response(ANSWER)

        monkeypatch.setattr("benchflow.job.scheduler.LOOK_AGAIN", 0.1)
        settings = config(caller(tmp_path, "4"), attempts=5, concurrency=5)
        async with provider(answer, monkeypatch):
            result = await Job(make_task("a"), tmp_path / "jobs", settings).run()
        assert result.passed == 5
        assert refused > 0
        assert result.usage["retries"] == refused
        assert result.usage["requests"] == 20

    async def test_a_provider_that_stays_busy_loses_the_rollout_and_not_the_agent(
        self, make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def answer() -> web.Response:
            return web.json_response({"type": "error"}, status=429, headers={"Retry-After": "0.05"})

        monkeypatch.setattr("benchflow.gateway.flight.RETRY_SECONDS", 0.2)
        settings = config(caller(tmp_path, "5", "fragile"), retry=RetryConfig(max_retries=1, min_wait_sec=0))
        async with provider(answer, monkeypatch):
            result = await Job(make_task("a"), tmp_path / "jobs", settings).run()
        (row,) = result.rollouts
        assert row.error is not None
        assert (row.error.kind, row.error.retryable, row.scored, row.tried) == ("ModelError", True, False, 2)

    async def test_a_provider_out_of_reach_loses_the_rollout_too(
        self, make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("benchflow.gateway.flight.CONNECT_WAIT", 0.01)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-planted-000")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
        settings = config(caller(tmp_path, "5"), retry=RetryConfig(max_retries=0))
        result = await Job(make_task("a"), tmp_path / "jobs", settings).run()
        (row,) = result.rollouts
        assert row.error is not None
        assert (row.error.kind, row.error.boundary, row.error.retryable, row.scored) == (
            "ModelError",
            "model",
            True,
            False,
        )
        assert "anthropic" in row.error.message


class TestOwnTime:
    pytestmark = local

    async def test_waiting_for_the_provider_is_not_the_agents_time(
        self, make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def answer() -> web.Response:
            await asyncio.sleep(1.5)
            return web.json_response(ANSWER)

        settings = config(caller(tmp_path, "3"), agent_working_timeout=3.0)
        async with provider(answer, monkeypatch):
            result = await Job(make_task("a"), tmp_path / "jobs", settings).run()
        (row,) = result.rollouts
        assert row.passed, row.error
        assert row.usage["waiting_seconds"] >= 4.5

    async def test_what_it_does_itself_is(
        self, make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def answer() -> web.Response:
            return web.json_response(ANSWER)

        monkeypatch.setattr("benchflow.acp.session.CANCEL_GRACE", 0.1)
        settings = config(caller(tmp_path, "3", "work=60"), agent_working_timeout=0.3)
        async with provider(answer, monkeypatch):
            result = await Job(make_task("a"), tmp_path / "jobs", settings).run()
        (row,) = result.rollouts
        assert row.error is not None
        assert row.error.kind == "AgentTimeout"
        assert "time of its own" in row.error.message
        assert row.reward == 0.0


async def test_while_a_provider_pushes_back_fewer_are_admitted() -> None:
    pace = Pace()
    account = Account("anthropic", "http://x", SecretStr("k"), ("anthropic",), "m")
    elsewhere = Account("openai", "http://y", SecretStr("k"), ("openai-chat",), "m")
    work = [Work((f"m{number}", 1), model="m") for number in range(8)]
    now = asyncio.get_running_loop().time
    async with Gateway(pace=pace) as gateway:
        accounts = {one.key: [account] for one in work[:7]} | {work[7].key: []}
        gate = Gate(Admission(lambda: Host(None, 10**6)), gateway, lambda one: accounts[one.key])
        assert not gate.crowded(work[6], work[:6]), "nobody complained"
        async with pace.turn(), pace.turn(), pace.turn(), pace.turn():
            pace.slow_down(0, now())
        assert [gate.crowded(work[6], work[:running]) for running in range(5)] == [False, False, True, True, True]
        assert not gate.crowded(work[7], work[:6]), "who asks nobody does not wait"
        for _ in range(20):
            pace.went_well()
        assert not gate.crowded(work[6], work[:6])
        pace.slow_down(3600, now())
        assert gate.crowded(work[6], work[:1]), "it wants to be left alone"
        assert not gate.crowded(work[6], []), "a job never waits for room that nobody will give back"
        assert gateway.trip(elsewhere) is None


async def test_who_waits_for_a_provider_holds_up_nobody_else(make_row: MakeRow) -> None:
    pace = Pace()
    account = Account("anthropic", "http://x", SecretStr("k"), ("anthropic",), "busy")
    work = [Work((model, number), model=model) for model in ("busy", "free") for number in (1, 2)]
    began: list[tuple[str, int]] = []
    others = asyncio.Event()

    async def play(one: Work) -> Row:
        began.append(one.key)
        if len(began) == 3:
            others.set()
        await others.wait()
        return make_row()

    async def judge(one: Work, row: Row) -> Verdict:
        return Verdict()

    async with Gateway(pace=pace) as gateway:
        accounts = {"busy": [account], "free": []}
        gate = Gate(Admission(lambda: Host(None, 10**6)), gateway, lambda one: accounts[str(one.model)])
        pace.slow_down(3600, asyncio.get_running_loop().time())
        await Scheduler(work, play, judge, concurrency=4, gate=gate).run()
    assert began == [("busy", 1), ("free", 1), ("free", 2), ("busy", 2)]
