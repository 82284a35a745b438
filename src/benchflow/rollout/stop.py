"""When a scene that repeats is over: a small language, and functions for what it cannot say.

    reward >= 1.0            the score after a round, from a verification on a fork; any reward's name, `>=` or `>`
    reviewer says done       that role has said so, to `scene`, in its outbox (see `outbox`); true at once
    [a, b]                   any of them

A function, plain or async, gets the round's `RoundResult` and ends the scene by returning true.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError, UserError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from benchflow.rollout.user import RoundResult

type StopFunction = Callable[[RoundResult], bool | Awaitable[bool]]
type StopWhen = str | StopFunction | Sequence[str | StopFunction]

_REWARD = re.compile(r"(?P<name>[A-Za-z_][\w.-]*)\s*(?P<sign>>=|>)\s*(?P<least>-?\d+(\.\d+)?)")
_SAYS = re.compile(r"(?P<role>\S(.*\S)?)\s+says\s+done", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Scored:
    """True when a reward is high enough. One that is missing never is."""

    name: str
    least: float
    above: bool = False

    def holds(self, rewards: Mapping[str, float] | None) -> bool:
        value = (rewards or {}).get(self.name)
        return value is not None and (value > self.least if self.above else value >= self.least)


@dataclass(frozen=True, slots=True)
class SaysDone:
    """True when the role says so."""

    role: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The conditions of one scene; any of them ends it."""

    scored: tuple[Scored, ...] = ()
    speakers: tuple[str, ...] = ()
    functions: tuple[StopFunction, ...] = ()

    def said(self, roles: Sequence[str]) -> bool:
        """Whether it is over because these roles say that they are done."""
        return any(role in self.speakers for role in roles)

    async def over(self, result: RoundResult) -> bool:
        """Whether it is over after this round. Raises UserError when a function fails."""
        if any(condition.holds(result.rewards) for condition in self.scored):
            return True
        return any([await _ask(function, result) for function in self.functions])


def parse_stop(when: StopWhen | None) -> Stop:
    """What `stop_when` says. Raises ConfigError for what it does not understand."""
    if when is None:
        return Stop()
    parts = list(when) if isinstance(when, Sequence) and not isinstance(when, str) else [when]
    functions = tuple(part for part in parts if not isinstance(part, str) and callable(part))
    conditions = [_parse(part) for part in parts if part not in functions]
    return Stop(
        tuple(one for one in conditions if isinstance(one, Scored)),
        tuple(one.role for one in conditions if isinstance(one, SaysDone)),
        functions,
    )


def describe_stop(when: StopWhen | None) -> str:
    """The conditions in words; a function is its name."""
    parts = list(when) if isinstance(when, Sequence) and not isinstance(when, str) else [when]
    words = [part if isinstance(part, str) else getattr(part, "__qualname__", repr(part)) for part in parts if part]
    return " or ".join(words)


def _parse(text: object) -> Scored | SaysDone:
    words = text.strip() if isinstance(text, str) else ""
    if found := _SAYS.fullmatch(words):
        return SaysDone(found["role"])
    if found := _REWARD.fullmatch(words):
        return Scored(found["name"], float(found["least"]), above=found["sign"] == ">")
    raise ConfigError(
        f"stop_when: {text!r:.100} is not understood", hint="write 'reward >= 1.0', 'ROLE says done' or a function"
    )


async def _ask(function: StopFunction, result: RoundResult) -> bool:
    try:
        if inspect.iscoroutinefunction(function):
            return bool(await function(result))
        answer = await asyncio.to_thread(function, result)
        return bool(await answer if inspect.isawaitable(answer) else answer)
    except Exception as error:
        name = getattr(function, "__qualname__", repr(function))
        raise UserError(f"stop_when: {name} failed: {type(error).__name__}: {error}") from error
