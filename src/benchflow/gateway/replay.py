"""A recorded rollout's answers in the place of a provider.

A request is answered with what the recording has for one of the same substance, each answer of a model once and in
their order; the order between different requests does not matter, because agents ask for helpers at the same time. A
request that was given up when it was recorded stays open until it is given up again. The first request that the
recording does not have ends the replay, with the difference to what was expected. With `turns` the replay ends after
that many turns of the conversation, and the provider itself goes on. If that is with another model, only the
conversation is compared: instructions, tools and parameters are what an agent makes for each model.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from benchflow.errors import ConfigError
from benchflow.gateway.alarm import Trip
from benchflow.gateway.dialects.base import get
from benchflow.gateway.ledger import read_exchanges
from benchflow.gateway.moment import Span
from benchflow.gateway.refusal import Refusal
from benchflow.gateway.substance import conversation, digest, first_difference, substance
from benchflow.gateway.upstream import Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from benchflow.gateway.dialects.base import Json
    from benchflow.gateway.upstream import Call


@dataclass(frozen=True, slots=True, eq=False)
class _Recorded:
    """One recorded exchange: what was asked, in substance, and what was answered; nothing, when it was given up."""

    asked: Json
    is_turn: bool
    status: int = 0
    answer: Json | None = None


class Replayer:
    """Stands in for a provider in one rollout (see `Gateway.admit`).

    `n_turns` is how many turns the recording has; `unused` counts answers nobody asked for yet; `difference` is how the
    request that ended the replay differs.
    """

    name = "replay"
    free = True

    def __init__(self, exchanges: Iterable[Json], *, turns: int | None = None, other_model: bool = False) -> None:
        self.difference: str | None = None
        self._turns = turns
        self._other_model = other_model
        self._given = 0
        self._began = datetime.now(UTC)
        self._waiting: dict[str, deque[_Recorded]] = defaultdict(deque)
        self._order: list[_Recorded] = []
        kept = [(exchange, _moment(exchange)) for exchange in exchanges]
        begin = min((moment for _, moment in kept), default=self._began)
        for exchange, moment in kept:
            if (recorded := _read(exchange, Span(begin, moment), other_model=other_model)) is not None:
                self._order.append(recorded)
                self._waiting[digest(recorded.asked)].append(recorded)
        self.n_turns = sum(one.is_turn and one.answer is not None for one in self._order)

    @classmethod
    def from_file(cls, path: Path, *, turns: int | None = None, other_model: bool = False) -> Self:
        """The replay of a ledger. Raises ConfigError when there is nothing in it to replay."""
        made = cls(read_exchanges(path), turns=turns, other_model=other_model)
        if not any(one.answer for one in made._order):
            raise ConfigError(f"{path}: no recorded answers of a model", hint="replay a rollout that used the gateway")
        return made

    @property
    def unused(self) -> int:
        return sum(one.answer is not None and one.asked["operation"] == "generate" for one in self._order)

    @property
    def finished(self) -> bool:
        """Whether the provider itself goes on from here."""
        return self._turns is not None and self._given >= self._turns

    @asynccontextmanager
    async def send(self, call: Call) -> AsyncIterator[Reply]:
        """Answer from the recording. Raises Refusal that says how the request differs from what was recorded."""
        recorded = self._take(call)
        if recorded.answer is None:
            await asyncio.Event().wait()
        self._given += recorded.is_turn
        if recorded.status >= 300 or not call.question.stream:
            yield _reply(recorded.status, "application/json", json.dumps(recorded.answer).encode())
        elif call.route.dialect.name == "gemini" and "alt=sse" not in call.query.split("&"):
            yield _reply(recorded.status, "application/json", json.dumps([recorded.answer]).encode())
        else:
            events = [event.to_bytes() for event in call.route.dialect.unfold(recorded.answer or {})]
            yield _reply(recorded.status, "text/event-stream", *events)

    def _take(self, call: Call) -> _Recorded:
        asked = _asked(
            call.route.dialect.name,
            call.route.operation,
            call.question.model,
            call.question.document,
            Span(self._began, datetime.now(UTC)),
            other_model=self._other_model,
        )
        if found := self._waiting.get(digest(asked)):
            recorded = next((one for one in found if one.answer is not None), found[0])
            if call.route.operation == "generate":
                found.remove(recorded)
                self._order.remove(recorded)
            return recorded
        if call.route.operation != "generate":
            raise Refusal(404, "the recording does not have this request")
        self.difference = self.difference or self._differs(asked)
        raise Refusal(400, self.difference, trip=Trip("replay", self.difference))

    def _differs(self, asked: Json) -> str:
        """How a request that was not recorded differs from the one that was next."""
        turn = asked["is_turn"]
        alike = [one for one in self._order if one.asked["operation"] == "generate" and one.answer is not None]
        expected = next((one for one in alike if one.is_turn == turn), next(iter(alike), None))
        if expected is None:
            return "the replay has ended: the agent asks for more answers than were recorded"
        number = self._given + 1
        return f"the replay ends at turn {number}: {first_difference(expected.asked, asked)}"


def _moment(exchange: Json) -> datetime:
    """When it was asked."""
    try:
        return datetime.fromisoformat(str(exchange.get("ts"))).astimezone(UTC)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)


def _read(exchange: Json, span: Span, *, other_model: bool) -> _Recorded | None:
    """A recorded exchange that can be given again: its request and answer were kept whole, or it was given up."""
    answer, body, status = get(exchange, "response", "body"), get(exchange, "request", "body"), exchange.get("status")
    if not isinstance(body, dict):
        return None
    about = exchange.get("dialect"), exchange.get("operation"), exchange.get("model")
    asked = _asked(*about, body, span, other_model=other_model)
    turn = bool(asked["is_turn"])
    if exchange.get("ended") in ("left", "closed"):
        return _Recorded(asked, turn)
    whole = exchange.get("ended") == "complete" and get(exchange, "response", "truncated") is not True
    return (
        _Recorded(asked, turn, status, answer)
        if whole and isinstance(answer, dict) and isinstance(status, int)
        else None
    )


def _asked(dialect: object, operation: object, model: object, body: Json, span: Span, *, other_model: bool) -> Json:
    """What a request asks, in substance. Those of helpers, such as for titles, offer no tools: they are no turns."""
    about = {"dialect": dialect, "operation": operation, "is_turn": bool(get(body, "tools"))}
    if other_model:
        return {**about, "body": substance(conversation(body), span)}
    return {**about, "model": model, "body": substance({key: body[key] for key in body if key != "model"}, span)}


def _reply(status: int, kind: str, *chunks: bytes) -> Reply:
    async def given() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return Reply(status, given(), (("content-type", kind),))
