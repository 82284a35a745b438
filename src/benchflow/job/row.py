"""One finished rollout as a job sees it: what result.json says, without what a job never asks for.

A measurement may have several attempts, and an attempt several tries: a rollout that was lost and done again. The last
try is the one that counts. A rollout with a reward is scored; one without is lost, which is never a zero. One that the
job's own budget cut off is lost as well: where the money ran out is an accident of the order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchflow.rollout.result import ErrorInfo
from benchflow.verify.reward import is_pass, main_reward

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchflow.job.lock import Key


_NOT: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Row:
    """One rollout that ended. `measurement` is empty for one that no job asked for.

    `played` says which performance it is (see `played`), `regraded_at` when it was scored again, if it was.
    """

    rollout_dir: Path
    task: str
    agent: str
    model: str | None
    measurement: str
    attempt: int
    tried: int
    rewards: Mapping[str, float] | None
    reward: float | None
    passed: bool
    error: ErrorInfo | None
    n_tool_calls: int
    timing: Mapping[str, float]
    usage: Mapping[str, Any]
    finished_at: str
    played: str = ""
    regraded_at: str = ""
    trust: str = "trusted"
    limit: Mapping[str, Any] | None = None
    tampering: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """A rollout that no job asked for is only itself."""
        return (self.measurement, self.attempt) if self.measurement else (str(self.rollout_dir), 1)

    @property
    def scored(self) -> bool:
        return self.reward is not None

    @property
    def cut_by_job(self) -> bool:
        """The job's money ran out under it, which says nothing about it: its reward does not count."""
        return self.limit is not None and self.limit["scope"] == "job"

    @property
    def cancelled(self) -> bool:
        """Somebody stopped it: neither scored nor lost, but not run."""
        return not self.scored and self.error is not None and self.error.kind == "Cancelled"

    @property
    def seconds(self) -> float:
        return self.timing.get("total", 0.0)

    def to_json(self) -> dict[str, object]:
        """What `--json` prints of a rollout."""
        return {
            "task": self.task,
            "agent": self.agent,
            "model": self.model,
            "attempt": self.attempt,
            "rewards": self.rewards,
            "error": error_json(self.error),
            "limit": self.limit,
            "rollout_dir": str(self.rollout_dir),
            "timing": self.timing,
            "usage": self.usage,
            "n_tool_calls": self.n_tool_calls,
            "trust": self.trust,
            "tampering": self.tampering,
            "regraded_at": self.regraded_at or None,
        }


def error_json(error: ErrorInfo | None) -> dict[str, object] | None:
    if error is None:
        return None
    names = ("kind", "boundary", "phase", "message", "retryable")
    return {name: getattr(error, name) for name in names}


def row_of(document: Mapping[str, Any], folder: Path) -> Row:
    """A row from result.json. Raises LookupError, TypeError, ValueError or AttributeError when it is not one."""
    labels = document.get("labels") or {}
    rewards = document["rewards"]
    error = document["error"]
    limit = document.get("limit")
    counts = limit is None or limit["scope"] != "job"
    return Row(
        rollout_dir=folder,
        task=str(document["task"]),
        agent=str(document["agent"]),
        model=document["model"],
        measurement=str(labels.get("measurement", "")),
        attempt=int(labels.get("attempt", 1)),
        tried=int(labels.get("try", 1)),
        rewards=rewards,
        reward=main_reward(rewards) if counts else None,
        passed=counts and is_pass(rewards),
        error=ErrorInfo(**error) if error else None,
        n_tool_calls=int(document.get("n_tool_calls") or 0),
        timing=document.get("timing") or {},
        usage=document.get("usage") or {},
        finished_at=str(document.get("finished_at", "")),
        played=str(labels.get("played", "")),
        regraded_at=str((document.get("regraded") or _NOT).get("at", "")),
        trust=trust_of(document),
        limit=limit,
        tampering=document.get("tampering") or _NOT,
    )


def trust_of(document: Mapping[str, Any]) -> str:
    """`trusted` or `suspect`: whether a pass can be taken for one."""
    return "trusted" if document.get("trust", "trusted") == "trusted" else "suspect"


def lost_row(key: Key, tried: int, task: str, agent: str, model: str | None, error: BaseException) -> Row:
    """A rollout that failed before it could write anything."""
    return Row(
        rollout_dir=Path(),
        task=task,
        agent=agent,
        model=model,
        measurement=key[0],
        attempt=key[1],
        tried=tried,
        rewards=None,
        reward=None,
        passed=False,
        error=ErrorInfo.of(error, "setup"),
        n_tool_calls=0,
        timing={},
        usage={},
        finished_at="",
    )


def settle(rows: Iterable[Row]) -> dict[Key, Row]:
    """The try that counts for each rollout: a scored one before a lost one, then the last."""
    found: dict[Key, Row] = {}
    for row in rows:
        known = found.get(row.key)
        if known is None or _rank(row) > _rank(known):
            found[row.key] = row
    return found


def _rank(row: Row) -> tuple[bool, int, str]:
    return row.scored, row.tried, row.finished_at
