"""Two rollouts on one gateway: what each shares with its own passes, and what it shares with nobody."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from pydantic import SecretStr

from benchflow.agent.credentials import Credentials
from benchflow.gateway.account import account_of
from benchflow.gateway.budget import Limits, Usage
from benchflow.gateway.ledger import Ledger, read_exchanges
from benchflow.gateway.price import price_table
from benchflow.gateway.server import Gateway
from benchflow.gateway.tally import STRANGERS_KEPT, Tally
from benchflow.gateway.tokens import Tokens
from benchflow.testing.model_server import Fail, ModelServer, Say

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.conftest import Bench

    from benchflow.gateway.account import Account

ASK: dict[str, Any] = {"model": "claude-sonnet-4-6", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}


async def ask(bench: Bench, root: str, token: str, model: str = "claude-sonnet-4-6") -> int:
    body = {**ASK, "model": model}
    async with bench.http.post(f"{root}/v1/messages", json=body, headers={"x-api-key": token}) as reply:
        await reply.read()
        return reply.status


def account(url: str, key: str) -> Account:
    found = Credentials(provider="anthropic", api_key=SecretStr(key), base_url=url, dialects=("anthropic",))
    made = account_of(found, "anthropic/claude-sonnet-4-6")
    assert made
    return made


async def test_two_rollouts_at_once_have_nothing_in_common(bench: Bench, tmp_path: Path) -> None:
    async with ModelServer([Say("one")]) as one, ModelServer([Say("two")]) as two:
        gateway = await bench.gateway()
        ledgers = [Ledger(tmp_path / f"{number}.jsonl") for number in range(2)]
        passes = [
            gateway.admit(account(server.url, f"sk-planted-{number}"), ledgers[number])
            for number, server in enumerate((one, two))
        ]
        roots = [await bench.open(pass_) for pass_ in passes]
        statuses = await asyncio.gather(
            *(ask(bench, roots[number % 2], passes[number % 2].token) for number in range(40))
        )
        assert set(statuses) == {200}
        for number, server in enumerate((one, two)):
            assert {request.headers["x-api-key"] for request in server.requests} == {f"sk-planted-{number}"}
            assert await ask(bench, roots[number], passes[1 - number].token) == 401, "the other's token"
            assert await ask(bench, roots[number], passes[number].token, "claude-opus-4-6") == 404, "another model"
            assert await ask(bench, roots[number], passes[number].token, "claude-sonnet-4-6-20260101") == 200
        assert [pass_.usage.requests for pass_ in passes] == [21, 21]
        assert gateway.budget.usage.requests == 42
        await passes[0].close()
        with pytest.raises(aiohttp.ClientError):
            await ask(bench, roots[0], passes[0].token)
        assert await ask(bench, roots[1], passes[0].token) == 401
        assert await ask(bench, roots[1], passes[1].token) == 200, "the other goes on"
        asked = len(one.requests), len(two.requests)
        await passes[1].close()
    for ledger in ledgers:
        ledger.close()
    assert asked == (21, 22)
    lines = [list(read_exchanges(ledger.path)) for ledger in ledgers]
    assert [sum(line["ended"] == "complete" for line in of) for of in lines] == [21, 22]
    texts = [ledger.path.read_text() for ledger in ledgers]
    for number in range(2):
        assert passes[0].token not in texts[number]
        assert passes[1].token not in texts[number]
        assert "sk-planted" not in texts[number]
        assert ('"one"' in texts[number], '"two"' in texts[number]) == (number == 0, number == 1)


async def test_the_passes_of_a_rollout_share_its_tally(bench: Bench) -> None:
    async with ModelServer([Say("hello")]) as model:
        gateway = await bench.gateway()
        tally = Tally(Limits(max_tokens=1500))
        first, second = (gateway.admit(account(model.url, "k"), bench.ledger, tally=tally) for _ in range(2))
        roots = [await bench.open(pass_) for pass_ in (first, second)]
        assert await ask(bench, roots[0], first.token) == 200
        assert await ask(bench, roots[1], second.token) == 200
        before = tally.trip
        assert await ask(bench, roots[0], first.token) == 402
        trip = tally.trip
    assert before is None, "the limit was reached, but nobody was refused yet"
    assert trip is not None
    assert (trip.kind, trip.scope, trip.limit) == ("tokens", "rollout", 1500)
    assert tally.usage.requests == 2
    assert first.waiting_seconds == second.waiting_seconds == tally.clock.seconds > 0


async def test_what_was_spent_before_counts(bench: Bench) -> None:
    async with ModelServer([Say("hello")]) as model:
        spent = Usage(requests=3, tokens=Tokens(input=90))
        gateway = await bench.gateway(Gateway(limits=Limits(max_tokens=100), spent=spent))
        mine = account(model.url, "k")
        assert gateway.trip(mine) is None
        pass_ = gateway.admit(mine, bench.ledger)
        root = await bench.open(pass_)
        assert [await ask(bench, root, pass_.token) for _ in range(2)] == [200, 402]
        trip = gateway.trip(mine)
        assert trip is not None
        assert (trip.scope, pass_.tripped) == ("job", trip)


async def test_a_busy_provider_is_remembered_until_it_answers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchflow.gateway.flight.RETRY_SECONDS", 0.2)
    async with ModelServer([Fail(429, retry_after=0.3), Fail(529), Say("hello")]) as model:
        gateway = await bench.gateway()
        tally = Tally()
        pass_ = gateway.admit(account(model.url, "k"), bench.ledger, tally=tally)
        root = await bench.open(pass_)
        assert await ask(bench, root, pass_.token) == 429
        assert tally.starved == "anthropic is too busy (HTTP 429)"
        monkeypatch.setattr("benchflow.gateway.flight.RETRY_SECONDS", 60.0)
        assert await ask(bench, root, pass_.token) == 200
        assert tally.starved == ""
        assert tally.usage.retries == 1
        assert gateway.room(account(model.url, "k")) is not None
        assert gateway.room(account(model.url, "other")) is None


def test_strangers_are_counted_up_to_a_number_of_names() -> None:
    tally = Tally()
    for number in range(3 * STRANGERS_KEPT):
        tally.stranger(f"m{number % (2 * STRANGERS_KEPT)}")
    assert len(tally.strangers) == STRANGERS_KEPT
    assert tally.strangers["m0"] == 2


def test_names_with_brackets_are_no_patterns() -> None:
    found = Credentials(provider="x", api_key=SecretStr("k"), base_url="http://x", dialects=("anthropic",))
    made = account_of(found, "x/big[low]", allowed=("small-*",))
    assert made
    allowed = [name for name in ("big[low]", "bigl", "big", "small-1", "big[low]-2026-01-01") if made.allows(name)]
    assert allowed == ["big[low]", "small-1", "big[low]-2026-01-01"]
    free = account_of(found, None)
    assert free
    assert free.allows("anything")


def test_the_table_of_prices_has_a_date() -> None:
    name, edition, date = price_table().split()
    assert name == "genai-prices"
    assert edition[0].isdigit()
    assert date.startswith("(20")
