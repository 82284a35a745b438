"""The pure decisions: prices, budgets, verdicts, waits and what is condemned."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from benchflow.gateway.alarm import Alarm, Trip
from benchflow.gateway.budget import UNMETERED_ALLOWED, Budget, Limits, Usage
from benchflow.gateway.clock import Clock
from benchflow.gateway.line import Line
from benchflow.gateway.pace import asked_wait
from benchflow.gateway.price import price, price_table
from benchflow.gateway.tokens import Tokens
from benchflow.gateway.verdict import judge, read_error


def test_a_known_model_has_a_price_in_which_cached_tokens_are_cheaper() -> None:
    fresh = price("anthropic", "claude-sonnet-4-6", Tokens(input=1_000_000))
    cached = price("anthropic", "claude-sonnet-4-6", Tokens(input=1_000_000, cached=1_000_000))
    written = price("anthropic", "claude-sonnet-4-6", Tokens(input=1_000_000, cache_write=1_000_000))
    kept = price(
        "anthropic", "claude-sonnet-4-6", Tokens(input=1_000_000, cache_write=1_000_000, cache_write_1h=1_000_000)
    )
    assert fresh is not None
    assert cached is not None
    assert written is not None
    assert kept is not None
    assert (float(fresh), float(cached), float(written), float(kept)) == (3.0, 0.3, 3.75, 6.0)
    assert price_table().startswith("genai-prices ")


@pytest.mark.parametrize(
    ("provider", "model"), [("gemini", "gemini-2.5-flash"), ("xai", "grok-4"), ("openai", "gpt-5.5")]
)
def test_our_names_of_providers_are_found_in_the_table(provider: str, model: str) -> None:
    assert price(provider, model, Tokens(input=1000, output=10))


def test_who_is_not_in_the_table_has_no_price_and_not_a_price_of_zero() -> None:
    assert price("openai", "scripted-1", Tokens(input=1000)) is None
    assert price("somebody", "gpt-5.5", Tokens(input=1000)) is None


def test_a_total_with_an_unknown_part_is_unknown() -> None:
    usage = Usage()
    usage.add(Tokens(input=10, output=5), 0.25)
    known = usage.cost
    usage.add(Tokens(input=1), None)
    assert (known, usage.cost) == (0.25, None)
    shown = usage.to_json()
    assert (shown["input_tokens"], shown["cost_usd"], shown["unpriced_requests"]) == (11, None, 1)
    assert (usage.requests, usage.tokens.total, usage.priced, usage.unpriced) == (2, 16, 0.25, 1)


def test_a_budget_is_reached_at_its_limit_and_rings_once() -> None:
    budget = Budget(Limits(max_cost=1.0))
    budget.charge(Tokens(input=1), 0.6)
    assert budget.reached() is None
    budget.charge(Tokens(input=1), 0.6)
    trip = budget.reached()
    assert trip is not None
    assert trip == budget.alarm.trip
    assert (trip.kind, trip.fatal) == ("cost", False)
    assert "$1.2000 of $1" in trip.message


def test_tokens_count_read_and_written_together() -> None:
    budget = Budget(Limits(max_tokens=100))
    budget.charge(Tokens(input=60, output=39), None)
    assert budget.reached() is None
    budget.charge(Tokens(output=1), None)
    trip = budget.reached()
    assert trip is not None
    assert trip.kind == "tokens"


def test_a_limit_bears_only_a_few_answers_that_nobody_counted() -> None:
    budget, open_budget = Budget(Limits(max_cost=1.0)), Budget()
    for _ in range(UNMETERED_ALLOWED):
        budget.charge(None, None)
    assert budget.reached() is None
    budget.charge(None, None)
    trip = budget.reached()
    assert trip is not None
    assert trip.kind == "unmetered"
    long = Budget(Limits(max_tokens=10**9))
    for number in range(1000):
        long.charge(Tokens(input=1) if number % 20 else None, None)
    assert long.reached() is None
    for _ in range(100):
        open_budget.charge(None, None)
    assert open_budget.reached() is None


async def test_an_alarm_rings_once() -> None:
    alarm = Alarm()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(alarm.wait())
        await asyncio.sleep(0)
        alarm.ring(Trip("key", "first"))
        alarm.ring(Trip("model", "second"))
    assert waiting.result() == alarm.trip == Trip("key", "first")


def error(**fields: object) -> bytes:
    return json.dumps({"error": fields}).encode()


@pytest.mark.parametrize(
    ("status", "headers", "body", "verdict"),
    [
        (429, {}, error(message="slow down", type="rate_limit_error"), "busy"),
        (529, {}, error(type="overloaded_error"), "busy"),
        (503, {"retry-after": "3"}, b"", "busy"),
        (503, {}, b"", "answer"),
        (500, {}, b"", "answer"),
        (429, {}, error(code="insufficient_quota", message="You exceeded your quota"), "billing"),
        (400, {}, error(type="invalid_request_error", message="Your credit balance is too low to"), "billing"),
        (402, {}, b"", "billing"),
        (401, {}, error(message="Incorrect API key"), "key"),
        (403, {}, b"<html>", "key"),
        (400, {}, error(message="API key not valid.", details=[{"reason": "API_KEY_INVALID"}]), "key"),
        (404, {}, error(type="not_found_error", message="model: claude-x"), "model"),
        (404, {}, error(code="model_not_found", message="no"), "model"),
        (400, {}, error(code="model_not_found", message="no"), "model"),
        (404, {}, error(code=404, status="NOT_FOUND", message="models/claude-x is not found"), "model"),
        (404, {}, error(message="File file_123 not found"), "answer"),
        (400, {}, error(type="invalid_request_error", message="claude-x: max_tokens too large"), "answer"),
        (400, {}, error(message="unexpected value 'insufficient_quota' in 'model_not_found'"), "answer"),
        (302, {}, b"", "redirect"),
    ],
)
def test_what_an_error_means(status: int, headers: dict[str, str], body: bytes, verdict: str) -> None:
    assert judge(status, headers, read_error(body), model="claude-x", configured=True) == verdict


def test_a_helper_model_that_does_not_exist_is_the_agents_affair() -> None:
    missing = read_error(error(code="model_not_found", message="no"))
    assert judge(404, {}, missing, model="helper", configured=False) == "answer"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'[{"error": {"message": "in a list"}}]', b"\xff\xff", b'{"error": "plain"}']
)
def test_any_error_can_be_read(body: bytes) -> None:
    assert isinstance(read_error(body).message, str)


def test_how_long_a_provider_asks_to_wait() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert asked_wait({"retry-after": "7"}, b"") == 7
    assert asked_wait({"retry-after": "0.5"}, b"") == 0.5
    assert asked_wait({"retry-after-ms": "250", "retry-after": "7"}, b"") == 0.25
    assert 60 < (asked_wait({"retry-after": later}, b"") or 0) <= 90
    assert asked_wait({"retry-after": "soon"}, b"") is None
    assert asked_wait({"retry-after": "-5"}, b"") is None
    assert asked_wait({}, json.dumps({"error": {"details": [{"retryDelay": "35.5s"}]}}).encode()) == 35.5
    assert asked_wait({}, b"not json") is None


def test_what_has_worked_is_not_condemned_by_what_an_agent_can_provoke() -> None:
    line = Line()
    assert line.condemn(Trip("model", "no"), "m", certain=False)
    assert line.trip("m") == Trip("model", "no")
    assert line.trip("other") is None
    line.worked("other")
    assert not line.condemn(Trip("key", "403"), "other", certain=False)
    assert not line.condemn(Trip("model", "404"), "other", certain=False)
    assert line.trip("other") is None
    assert line.condemn(Trip("key", "401"), "other", certain=True)
    assert line.trip("other") == line.trip("") == Trip("key", "401")


def test_overlapping_waits_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("benchflow.gateway.clock.time.monotonic", lambda: now)
    clock = Clock()
    with clock.waiting():
        now = 1.0
        with clock.waiting():
            now = 3.0
        assert clock.seconds == 3.0
    now = 10.0
    with clock.waiting():
        now = 11.0
    assert clock.seconds == 4.0
