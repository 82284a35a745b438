"""Rewards composed from functions: the test script, string matches and judges, each with a weight."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchflow.errors import BenchflowError, ConfigError, VerifierError
from benchflow.verify.base import RewardEvent, VerifyResult
from benchflow.verify.reward import main_reward
from benchflow.verify.script import run_script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchflow.verify.base import Evidence, RewardFunc


@dataclass(frozen=True)
class Rubric:
    """A weighted mean of reward functions. Each one's own value is kept under its name beside `reward`."""

    funcs: Sequence[RewardFunc]
    weights: Sequence[float] = field(default=())

    def __post_init__(self) -> None:
        names = [func.name for func in self.funcs]
        if not names or len(set(names)) != len(names) or "reward" in names:
            raise ConfigError(f"a rubric needs functions with different names other than 'reward'; got {names}")
        if self.weights and len(self.weights) != len(names):
            raise ConfigError(f"a rubric of {len(names)} functions got {len(self.weights)} weights")
        if self.weights and (min(self.weights) < 0 or sum(self.weights) <= 0):
            raise ConfigError("weights of a rubric must not be negative, and one must be positive")

    async def verify(self, evidence: Evidence) -> VerifyResult:
        """Run every function. Raises VerifierError as soon as one cannot score: a partial score is no score."""
        weights = self.weights or [1.0] * len(self.funcs)
        events = [
            dataclasses.replace(await _score(func, evidence), weight=weight)
            for func, weight in zip(self.funcs, weights, strict=True)
        ]
        total = sum(event.value * event.weight for event in events) / sum(weights)
        return VerifyResult(rewards={"reward": total} | {event.name: event.value for event in events}, events=events)


async def _score(func: RewardFunc, evidence: Evidence) -> RewardEvent:
    """What a function says, which may be anyone's: whatever it raises, and a value that is no number, is no score."""
    try:
        event = await func.score(evidence)
    except BenchflowError:
        raise
    except Exception as error:
        raise VerifierError(f"the reward function {func.name!r} failed: {type(error).__name__}: {error}") from error
    if not math.isfinite(event.value):
        raise VerifierError(f"the reward function {func.name!r} gave {event.value}; a finite number is expected")
    return event


@dataclass(frozen=True)
class TestRewardFunc:
    """The task's own test script; its main reward is the value."""

    name: str = "tests"

    # Keeps pytest from collecting a class whose name starts with Test.
    __test__ = False

    async def score(self, evidence: Evidence) -> RewardEvent:
        rewards = await run_script(evidence.sandbox, evidence.script, evidence.folder)
        return RewardEvent(self.name, main_reward(rewards) or 0.0, detail=str(rewards))


@dataclass(frozen=True)
class StringMatchRewardFunc:
    """1.0 when the agent's answer contains the expected text as whole words, else 0.0."""

    expected: str
    ignore_case: bool = True
    name: str = "match"

    async def score(self, evidence: Evidence) -> RewardEvent:
        pattern = rf"(?<!\w){re.escape(self.expected.strip())}(?!\w)"
        found = re.search(pattern, evidence.answer, re.IGNORECASE if self.ignore_case else 0)
        return RewardEvent(self.name, 1.0 if found else 0.0, detail=f"expected {self.expected!r}")
