"""What the results in a folder add up to: for all together, for each agent and model, and for each tag of the tasks."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.job.lock import read_lock
from benchflow.job.metrics_text import summary_text
from benchflow.job.score import by_task, score
from benchflow.job.stats import pass_at_k, pass_hat_k
from benchflow.job.store import job_folders, settled
from benchflow.job.summary import total_usage
from benchflow.rollout.result import PHASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchflow.job.row import Row
    from benchflow.job.score import Score

KS = (1, 2, 3, 4, 5, 8, 10, 16, 25, 32, 50, 64, 100)
"""For which numbers of attempts pass@k and pass^k are given, where there are as many."""


@dataclass(frozen=True, slots=True)
class PassK:
    """pass@k (one of k passes) and pass^k (all of k pass), averaged over the `tasks` that have k scored attempts.

    Attempts are those of one agent with one model: a task that several of them tried counts once for each.
    """

    k: int
    at: float
    hat: float
    tasks: int


@dataclass(frozen=True, slots=True)
class ErrorCount:
    """How often rollouts met an error, and how many of them were lost to it. `example` is what one of them said."""

    boundary: str
    kind: str
    count: int
    lost: int
    example: str


@dataclass(frozen=True, slots=True)
class Group:
    """Some rollouts and what they add up to. Seconds, cost and tool calls are means over the rollouts.

    `suspect` are passes that may not be ones, because the agent could have reached the verifier or was seen to try;
    they are among `score.passed`. `tampering` counts what was found, by severity. `cost` is by phase, for those in
    which a model was asked; None where it is unknown.
    """

    name: str
    score: Score
    suspect: int
    tampering: Mapping[str, int]
    tasks: int
    pass_k: Sequence[PassK]
    tool_calls: float
    seconds: Mapping[str, float]
    cost: Mapping[str, float | None]
    usage: Mapping[str, float | None]
    errors: Sequence[ErrorCount]

    def to_json(self) -> dict[str, object]:
        return {**dataclasses.asdict(self), "share": self.score.share, "trusted_share": self.trusted_share}

    @property
    def trusted_share(self) -> float:
        """Passed among scored when a suspect pass is none."""
        return (self.score.passed - self.suspect) / self.score.scored if self.score.scored else 0.0


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics of a folder of results."""

    benchmark: str
    jobs: int
    overall: Group
    groups: Sequence[Group]
    tags: Sequence[Group]

    def summary(self) -> str:
        """All of it as text, for a person."""
        return summary_text(self)

    def to_json(self) -> dict[str, object]:
        return {
            "benchmark": self.benchmark,
            "jobs": self.jobs,
            "overall": self.overall.to_json(),
            "groups": [group.to_json() for group in self.groups],
            "tags": [group.to_json() for group in self.tags],
        }

    def to_csv(self) -> str:
        """One line for each agent and model and for each tag (see the column `by`), one column for each number."""
        lines = [{"by": "agent", **_flat(group)} for group in self.groups]
        lines += [{"by": "tag", **_flat(group)} for group in self.tags]
        columns = list(dict.fromkeys(column for line in lines for column in line))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        return text.getvalue()


def collect_metrics(path: Path | str, benchmark: str = "") -> Metrics:
    """The metrics of a job's folder, or of all jobs in a folder. Raises ConfigError when there are no results."""
    folders = job_folders(Path(path))
    rows: list[Row] = []
    tags: dict[str, Sequence[str]] = {}
    for folder in folders:
        lock = read_lock(folder)
        rows += settled(folder, lock)
        if lock:
            tags |= {name: task.tags for name, task in lock.tasks.items()}
    return metrics_of(rows, tags, benchmark or Path(path).absolute().name, len(folders))


def metrics_of(rows: Sequence[Row], tags: Mapping[str, Sequence[str]], benchmark: str, jobs: int = 1) -> Metrics:
    """The metrics of rows that count; `tags` are those of each task."""
    tagged: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        for tag in tags.get(row.task, ()):
            tagged[tag].append(row)
    return Metrics(
        benchmark=benchmark,
        jobs=jobs,
        overall=group_of("all", rows),
        groups=[group_of(name, listed) for name, listed in sorted(_by_player(rows).items())],
        tags=[group_of(name, listed) for name, listed in sorted(tagged.items())],
    )


def _by_player(rows: Iterable[Row]) -> dict[str, list[Row]]:
    players: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        players[f"{row.agent} {row.model or ''}".strip()].append(row)
    return players


def group_of(name: str, rows: Sequence[Row]) -> Group:
    n = max(1, len(rows))
    usage = total_usage(rows)
    return Group(
        name=name,
        score=score(rows),
        suspect=sum(row.passed and row.trust != "trusted" for row in rows),
        tampering=_tampering(rows),
        tasks=len({row.task for row in rows}),
        pass_k=pass_k([counts for one in _by_player(rows).values() for counts in by_task(one).values()]),
        tool_calls=sum(row.n_tool_calls for row in rows) / n,
        seconds={phase: sum(row.timing.get(phase, 0.0) for row in rows) / n for phase in (*PHASES, "total")},
        cost={"agent_execution": spent / n if (spent := usage.get("cost_usd")) is not None else None},
        usage=usage,
        errors=count_errors(rows),
    )


def _tampering(rows: Iterable[Row]) -> dict[str, int]:
    """Findings by severity, the gravest first."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(row.tampering)
    return {severity: counts[severity] for severity in ("critical", "warning", "info") if counts[severity]}


def pass_k(tasks: Sequence[tuple[int, int]]) -> list[PassK]:
    """pass@k and pass^k from (passed, scored) of each task."""
    most = max((scored for _, scored in tasks), default=0)
    found = []
    for k in (k for k in KS if k <= most):
        enough = [(passed, n) for passed, n in tasks if n >= k]
        at = sum(pass_at_k(n, passed, k) for passed, n in enough) / len(enough)
        hat = sum(pass_hat_k(n, passed, k) for passed, n in enough) / len(enough)
        found.append(PassK(k, at, hat, len(enough)))
    return found


def count_errors(rows: Iterable[Row]) -> list[ErrorCount]:
    """Errors by boundary and kind, the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    lost: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for row in rows:
        if row.error:
            cause = row.error.boundary, row.error.kind
            counts[cause] += 1
            lost[cause] += not row.scored
            examples.setdefault(cause, row.error.message)
    return [ErrorCount(*cause, count, lost[cause], examples[cause]) for cause, count in counts.most_common()]


def _flat(group: Group) -> dict[str, object]:
    low, high = group.score.interval
    return {
        "name": group.name,
        "tasks": group.tasks,
        "passed": group.score.passed,
        "scored": group.score.scored,
        "lost": group.score.lost,
        "suspect": group.suspect,
        "tampering": sum(group.tampering.values()),
        "share": group.score.share,
        "low": low,
        "high": high,
        "mean_reward": group.score.mean_reward,
        "tool_calls": group.tool_calls,
        **{f"seconds_{phase}": seconds for phase, seconds in group.seconds.items()},
        **{f"cost_{phase}": cost for phase, cost in group.cost.items()},
        **group.usage,
        **{f"pass_at_{one.k}": one.at for one in group.pass_k},
        **{f"pass_hat_{one.k}": one.hat for one in group.pass_k},
        "errors": sum(error.count for error in group.errors),
    }
