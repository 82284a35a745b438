"""`summary.json`: how far a job is and what came out, replaced in one step while it runs and when it ends."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from benchflow.gateway.budget import Usage
from benchflow.gateway.tokens import Tokens
from benchflow.job.score import score
from benchflow.job.store import SUMMARY
from benchflow.rollout.store import write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from benchflow.job.lock import JobLock
    from benchflow.job.row import Row
    from benchflow.job.score import Score

State = Literal["running", "finished", "interrupted", "halted"]

USAGE = (
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cost_usd",
    "priced_usd",
    "requests",
    "retries",
    "unmetered_requests",
    "unpriced_requests",
    "waiting_seconds",
)
"""What is added up over rollouts; see `rollout.result.Usage`."""

REMEMBERED_JOBS = 20
"""How many of the latest jobs beside this one are asked how long tasks took."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """What came out of a job. `rollouts` are those that ended, one for each attempt.

    `usage` is what those used; `spent` is what went through the gateway in all, for rollouts that were lost, too.
    """

    job_dir: Path
    state: State
    rollouts: Sequence[Row] = field(repr=False)
    planned: int
    message: str = ""
    spent: Mapping[str, object] | None = None

    @property
    def scores(self) -> Score:
        """Passed, scored and lost, with the interval."""
        return score(self.rollouts, self.planned)

    @property
    def passed(self) -> int:
        return self.scores.passed

    @property
    def total(self) -> int:
        """Every rollout that was asked for, whether it ended or not."""
        return self.planned

    @property
    def score(self) -> float:
        """The share that passed among the scored."""
        return self.scores.share

    @property
    def usage(self) -> dict[str, float | str | None]:
        tables = {row.usage["prices"] for row in self.rollouts if row.usage.get("prices")}
        return {**total_usage(self.rollouts), "prices": ", ".join(sorted(tables)) or None}

    @property
    def errors(self) -> int:
        """Rollouts that ended with an error, whether they were scored or not."""
        return sum(row.error is not None for row in self.rollouts)

    def to_json(self) -> dict[str, object]:
        """What `--json` prints of a job."""
        return {
            "job_dir": str(self.job_dir),
            "state": self.state,
            "message": self.message,
            "score": dataclasses.asdict(self.scores),
            "usage": self.usage,
            "spent": self.spent,
            "rollouts": [row.to_json() for row in self.rollouts],
        }


def total_usage(rows: Iterable[Row]) -> dict[str, float | None]:
    """Tokens and cost of all together. None where nobody said anything, which is not the same as zero.

    A cost of which a part is not known is not known; `priced_usd` is the part that is.
    """
    totals: dict[str, float | None] = dict.fromkeys(USAGE)
    known = True
    for row in rows:
        usage = {**row.usage, "priced_usd": row.usage.get("priced_usd") or row.usage.get("cost_usd")}
        for name in USAGE:
            if (used := usage.get(name)) is not None:
                totals[name] = (totals[name] or 0) + used
        known = known and (row.usage.get("cost_usd") is not None or not row.usage.get("input_tokens"))
    return totals if known else {**totals, "cost_usd": None}


def spent_before(rows: Iterable[Row]) -> Usage:
    """What went through the gateway for rollouts that ended, whether they count or not."""
    total = Usage()
    for used in (row.usage for row in rows if row.usage.get("requests")):
        total.requests += int(used["requests"])
        total.tokens += Tokens(
            input=used.get("input_tokens") or 0,
            cached=used.get("cached_tokens") or 0,
            cache_write=used.get("cache_write_tokens") or 0,
            output=used.get("output_tokens") or 0,
            reasoning=used.get("reasoning_tokens") or 0,
        )
        total.priced += used.get("priced_usd") or 0.0
        total.unmetered += used.get("unmetered_requests") or 0
        total.unpriced += used.get("unpriced_requests") or 0
        total.retries += used.get("retries") or 0
    return total


def write_summary(lock: JobLock, result: JobResult) -> None:
    seconds = task_seconds(result.rollouts)
    document = {key: value for key, value in result.to_json().items() if key not in ("rollouts", "job_dir")}
    document |= {
        "name": lock.name,
        "created_at": lock.created_at,
        "updated_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "ended": len(result.rollouts),
        "errors": result.errors,
        "agents": sorted({one.agent for one in lock.measurements}),
        "models": sorted({one.model for one in lock.measurements if one.model}),
        "tasks": len(lock.tasks),
        "task_seconds": {task: round(took, 3) for task, took in seconds.items()},
    }
    write_json(result.job_dir / SUMMARY, document, durable=result.state != "running")


def task_seconds(rows: Iterable[Row]) -> dict[str, float]:
    """How long a rollout of each task took, on average."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.scored:
            found[row.task].append(row.seconds)
    return {task: sum(took) / len(took) for task, took in found.items()}


def remembered_seconds(jobs_dir: Path) -> dict[str, float]:
    """How long tasks took in the latest jobs here, the newest word counting."""
    found: dict[str, float] = {}
    try:
        files = sorted(jobs_dir.glob(f"*/{SUMMARY}"), key=lambda file: file.stat().st_mtime)[-REMEMBERED_JOBS:]
    except OSError:
        return {}
    for file in files:
        try:
            known = json.loads(file.read_bytes())["task_seconds"]
            found |= {str(task): float(took) for task, took in known.items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
    return found


def longest_first[T](items: Sequence[T], tasks: Sequence[str], seconds: Mapping[str, float]) -> list[T]:
    """The items in the order of how long their tasks took, longest first; unknown ones as if they took the median."""
    known = sorted(seconds[task] for task in tasks if task in seconds)
    middle = known[len(known) // 2] if known else 0.0
    order = sorted(range(len(items)), key=lambda i: -seconds.get(tasks[i], middle))
    return [items[i] for i in order]
