"""What passes share: budgets, the pace of an account, the fate of a job; and many of them at the same time."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from benchflow.gateway.account import account_of
from benchflow.gateway.budget import Budget, Limits
from benchflow.gateway.ledger import Ledger, read_exchanges
from benchflow.gateway.pace import Pace
from benchflow.gateway.price import price
from benchflow.gateway.server import Gateway
from benchflow.gateway.tokens import Tokens
from benchflow.testing.model_server import ModelServer, Say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.gateway.conftest import Bench

    from benchflow.agent.spec import Dialect
    from benchflow.gateway.admission import Pass

ASK: dict[str, Any] = {"model": "claude-sonnet-4-6", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
COST = float(price("anthropic", "claude-sonnet-4-6", Tokens(input=1001, cached=64, output=17)) or 0)
"""What every scripted answer costs."""


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer([Say("hello")]) as server:
        yield server


async def ask(bench: Bench, pass_: Pass, root: str) -> int:
    async with bench.http.post(f"{root}/v1/messages", json=ASK, headers={"x-api-key": pass_.token}) as reply:
        await reply.read()
        return reply.status


async def test_a_rollout_ends_at_its_budget(bench: Bench, model: ModelServer) -> None:
    gateway = await bench.gateway()
    account = bench.account(model.url, "anthropic")
    small = gateway.admit(account, bench.ledger, Limits(max_cost=2.5 * COST))
    large = gateway.admit(account, bench.ledger, Limits(max_cost=100))
    root = await bench.open(small)
    assert [await ask(bench, small, root) for _ in range(5)] == [200, 200, 200, 402, 402]
    assert small.tripped is not None
    assert small.tripped.kind == "cost"
    assert small.usage.cost == pytest.approx(3 * COST)
    assert gateway.alarm.trip is None
    assert await ask(bench, large, await bench.open(large)) == 200
    assert len(model.requests) == 4


@pytest.mark.parametrize(
    ("dialect", "path", "body", "status", "kind"),
    [
        ("openai-chat", "/v1/chat/completions", {"model": "gpt-5.5", "messages": []}, 402, "insufficient_quota"),
        ("openai-responses", "/v1/responses", {"model": "gpt-5.5", "input": "x"}, 400, "invalid_request_error"),
        ("gemini", "/v1beta/models/gemini-2.5-flash:generateContent", {"contents": []}, 400, "INVALID_ARGUMENT"),
    ],
)
async def test_the_end_of_a_budget_is_said_in_every_dialect(
    bench: Bench, model: ModelServer, dialect: Dialect, path: str, body: Any, status: int, kind: str
) -> None:
    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(model.url, dialect), bench.ledger, Limits(max_tokens=1))
    url = f"{await bench.open(pass_)}{path}"
    for expected in (200, status):
        async with bench.http.post(url, json=body, headers={"Authorization": f"Bearer {pass_.token}"}) as reply:
            said = await reply.json()
            assert reply.status == expected
    error = said["error"]
    assert "max_tokens" in error["message"]
    assert kind in (error.get("type"), error.get("status"))


async def test_a_job_ends_at_its_budget_with_at_most_one_more_request_of_each(bench: Bench, model: ModelServer) -> None:
    budget = 20 * COST
    gateway = await bench.gateway(Gateway(limits=Limits(max_cost=budget)))
    passes = [gateway.admit(bench.account(model.url, "anthropic"), bench.ledger) for _ in range(6)]

    async def run(pass_: Pass) -> None:
        root = await bench.open(pass_)
        while await ask(bench, pass_, root) == 200:
            pass

    async with asyncio.TaskGroup() as group:
        for pass_ in passes:
            group.create_task(run(pass_))
        trip = await gateway.alarm.wait()
    assert trip.kind == "cost"
    assert "the job's budget" in trip.message
    assert all(pass_.tripped for pass_ in passes)
    spent = gateway.budget.usage.cost
    assert spent is not None
    assert budget <= spent <= budget + len(passes) * COST
    assert spent == pytest.approx(sum(pass_.usage.priced for pass_ in passes))


async def test_a_budget_can_be_shared_by_some(bench: Bench, model: ModelServer) -> None:
    gateway = await bench.gateway()
    shared = Budget(Limits(max_tokens=2000), name="group")
    account = bench.account(model.url, "anthropic")
    first, second = (gateway.admit(account, bench.ledger, budgets=[shared]) for _ in range(2))
    apart = gateway.admit(account, bench.ledger)
    roots = [await bench.open(pass_) for pass_ in (first, second, apart)]
    assert [await ask(bench, first, roots[0]) for _ in range(2)] == [200, 200]
    assert await ask(bench, second, roots[1]) == 402
    assert await ask(bench, apart, roots[2]) == 200
    assert second.tripped is not None
    assert "group" in second.tripped.message


async def test_a_busy_provider_slows_down_everybody_and_fails_nobody(bench: Bench) -> None:
    running = most = refused = 0
    full = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.Response:
        """Takes four at a time, and the first four only together."""
        nonlocal running, most, refused
        if running >= 4:
            refused += 1
            return web.json_response(
                {"error": {"type": "rate_limit_error"}}, status=429, headers={"Retry-After": "0.05"}
            )
        running += 1
        most = max(most, running)
        if running == 4:
            full.set()
        await full.wait()
        await asyncio.sleep(0.01)
        running -= 1
        return web.json_response({"model": "m", "usage": {"input_tokens": 1, "output_tokens": 1}, "content": []})

    url = await bench.provider(handler)
    gateway = await bench.gateway()
    passes = [gateway.admit(bench.account(url, "anthropic"), bench.ledger) for _ in range(16)]

    async def run(pass_: Pass) -> list[int]:
        root = await bench.open(pass_)
        return [await ask(bench, pass_, root) for _ in range(8)]

    statuses = await asyncio.gather(*(run(pass_) for pass_ in passes))
    assert {status for one in statuses for status in one} == {200}
    assert gateway.alarm.trip is None
    assert refused < 16 * 8, "those who were refused are asked again, but not all the time"
    assert most == 4


async def test_one_pace_for_all(bench: Bench, model: ModelServer) -> None:
    pace = Pace()
    gateway = await bench.gateway(Gateway(pace=pace))
    pass_ = gateway.admit(bench.account(model.url, "anthropic"), bench.ledger)
    loop = asyncio.get_running_loop()
    pace.slow_down(0.1, loop.time())
    began = loop.time()
    assert await ask(bench, pass_, await bench.open(pass_)) == 200
    assert loop.time() - began >= 0.1
    (exchange,) = bench.exchanges()
    assert float(str(exchange["waited"])) > 0


async def test_many_rollouts_with_many_requests(bench: Bench, tmp_path: Path) -> None:
    """64 passes on 64 ledgers, 1,024 requests, half of them streams: nothing is lost or mixed up."""

    async with ModelServer([Say("some words of an answer")]) as model:
        gateway = await bench.gateway()
        account = bench.account(model.url, "anthropic")
        ledgers = [Ledger(tmp_path / f"{number}.jsonl") for number in range(64)]
        passes = [gateway.admit(account, ledger) for ledger in ledgers]

        async def run(number: int, pass_: Pass) -> None:
            root = await bench.open(pass_)
            for turn in range(16):
                body = {**ASK, "stream": turn % 2 == 0, "messages": [{"role": "user", "content": f"{number}/{turn}"}]}
                async with bench.http.post(
                    f"{root}/v1/messages", json=body, headers={"x-api-key": pass_.token}
                ) as reply:
                    assert reply.status == 200
                    assert b"words" in (await reply.read()) or turn % 2 == 0

        await asyncio.gather(*(run(number, pass_) for number, pass_ in enumerate(passes)))
        for number, ledger in enumerate(ledgers):
            await passes[number].close()
            ledger.close()
            lines: list[Any] = list(read_exchanges(ledger.path))
            said = [line["request"]["body"]["messages"][0]["content"] for line in lines]
            assert said == [f"{number}/{turn}" for turn in range(16)]
            assert all(line["ended"] == "complete" and line["tokens"]["output"] == 17 for line in lines)
        assert gateway.budget.usage.requests == 1024
        assert gateway.budget.usage.cost == pytest.approx(1024 * COST)


async def test_leaving_the_gateway_closes_its_passes(bench: Bench, model: ModelServer) -> None:
    async with Gateway() as gateway:
        pass_ = gateway.admit(bench.account(model.url, "anthropic"), bench.ledger)
        root = await bench.open(pass_)
        assert await ask(bench, pass_, root) == 200
    assert pass_.closed


async def test_an_account_is_made_from_credentials(tmp_path: Path) -> None:
    from benchflow.agent.catalog import get_agent
    from benchflow.agent.credentials import resolve_credentials

    environ = {"ANTHROPIC_API_KEY": "sk-secret-value", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1/"}
    found = resolve_credentials(get_agent("claude"), "anthropic/claude-haiku-4-5", environ, tmp_path)
    account = account_of(found, "anthropic/claude-haiku-4-5")
    assert account is not None
    assert (account.base_url, account.dialects, account.model) == (
        "http://127.0.0.1:1",
        ("anthropic",),
        "claude-haiku-4-5",
    )
    assert "sk-secret-value" not in repr(account)
    login = resolve_credentials(get_agent("claude"), None, {"CLAUDE_CODE_OAUTH_TOKEN": "oauth-token"}, tmp_path)
    account = account_of(login, None)
    assert account is not None
    assert account.bearer
    opaque = resolve_credentials(get_agent("codex"), None, {"CODEX_ACCESS_TOKEN": "opaque-token"}, tmp_path)
    assert account_of(opaque, None) is None


async def test_the_token_of_a_login_is_sent_with_what_belongs_to_it(bench: Bench, model: ModelServer) -> None:
    gateway = await bench.gateway()
    account = bench.account(model.url, "anthropic", bearer=True, headers={"account-id": "mine"})
    pass_ = gateway.admit(account, bench.ledger)
    root = await bench.open(pass_)
    theirs = {"x-api-key": pass_.token, "Account-Id": "another", "Authorization": "Bearer other"}
    async with bench.http.post(f"{root}/v1/messages", json=ASK, headers=theirs) as reply:
        assert reply.status == 200
    (seen,) = [request.headers for request in model.turns]
    named = {name.lower(): value for name, value in seen.items()}
    assert named["authorization"] == f"Bearer {account.api_key.get_secret_value()}"
    assert named["account-id"] == "mine"
    assert "x-api-key" not in named


def test_loading_the_gateway_loads_neither_prices_nor_translators() -> None:
    code = "import sys, json, benchflow.gateway.server; print(json.dumps(sorted(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    loaded = set(json.loads(ended.stdout))
    assert not {"genai_prices", "litellm", "openai", "anthropic", "brotli"} & loaded - {"brotli"}
