"""What comes out of a rollout, in memory and as result.json.

An error says once whose fault it was: its boundary is that of the exception class which was raised where it happened.
"""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchflow.errors import BenchflowError
from benchflow.verify.reward import is_pass, main_reward

if TYPE_CHECKING:
    from pathlib import Path


PHASES = ("environment_setup", "agent_setup", "agent_execution", "verifier")
"""The phases of a rollout that are timed."""


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """A failure as a result: what it was (`kind`), at which boundary, in which phase, and whether to try again."""

    kind: str
    boundary: str
    phase: str
    message: str
    retryable: bool = False

    @classmethod
    def of(cls, error: BaseException, phase: str) -> ErrorInfo:
        if isinstance(error, BenchflowError):
            return cls(type(error).__name__, error.boundary, phase, str(error), error.retryable)
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
            return cls("Cancelled", "benchflow", phase, "the rollout was cancelled", retryable=True)
        return cls(type(error).__name__, "benchflow", phase, f"{type(error).__name__}: {error}")


@dataclass(slots=True)
class Usage:
    """Tokens and cost. None means unknown, which is not the same as zero.

    `cached_tokens` and `cache_write_tokens` are parts of the input, `reasoning_tokens` of the output. `cost_usd` is by
    the table that `prices` names, and unknown as soon as a part of it is; `priced_usd` is the part that is known.
    `requests` are those that a model answered, some of them perhaps without saying what they used (`unmetered`) or at
    no known price (`unpriced`); `retries` are attempts for which the provider was too busy. `waiting_seconds` is how
    long the provider was waited for.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    priced_usd: float | None = None
    prices: str | None = None
    requests: int | None = None
    retries: int | None = None
    unmetered_requests: int | None = None
    unpriced_requests: int | None = None
    waiting_seconds: float | None = None


@dataclass(slots=True)
class RolloutResult:
    """One finished rollout. It exists whatever happened: an error is a field, not an exception.

    `trust` is `trusted` or `suspect`: whether the score holds in spite of what `tampering` counts by severity, all of
    which tampering.json lists. `opt_outs` names the safeguards that the task did without.
    `limit` says which budget it was cut off by, if it was: `scope` (`rollout` or `job`), `kind` and `limit`.
    """

    task: str
    agent: str
    model: str | None
    rollout_dir: Path
    rewards: dict[str, float] | None = None
    error: ErrorInfo | None = None
    limit: dict[str, str | float | None] | None = None
    n_tool_calls: int = 0
    timing: dict[str, float] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    verify_level: str | None = None
    trust: str = "trusted"
    tampering: dict[str, int] = field(default_factory=dict)
    opt_outs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    branches: list[dict[str, Any]] = field(default_factory=list)
    sandbox: str = ""
    sandbox_user: str | None = None
    labels: dict[str, str | int] = field(default_factory=dict)
    started_at: str = ""
    finished_at: str = ""

    @property
    def reward(self) -> float | None:
        return main_reward(self.rewards)

    @property
    def passed(self) -> bool:
        return is_pass(self.rewards)

    @property
    def trajectory(self) -> list[dict[str, Any]]:
        """The events of the agents, read back from disk; empty when nothing was said."""
        from benchflow.trajectory.reader import read_events

        path = self.rollout_dir / "trajectory" / "acp_trajectory.jsonl"
        return list(read_events(path)) if path.exists() else []

    def to_json(self) -> dict[str, Any]:
        document = dataclasses.asdict(self)
        document["rollout_dir"] = str(self.rollout_dir)
        document["reward"] = self.reward
        document["passed"] = self.passed
        return document
