"""Two sets of results compared, task by task: which is better, how sure that is, and what would settle it.

Only tasks that both have a score for are compared. A task's value is the share of its attempts that passed. The
difference is the mean over tasks of the second's share less the first's. Its test is the exact sign test over tasks;
with one attempt each that is McNemar's exact test. What makes the two less than comparable is said: a task that is not
the same on both sides, and a side on which several agents or models are taken together.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.job.lock import read_lock
from benchflow.job.metrics_text import percent
from benchflow.job.score import by_task
from benchflow.job.stats import paired_interval, sign_test, t_quantile, variance
from benchflow.job.store import job_folders, settled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchflow.job.row import Row

type Counts = tuple[int, int]
"""(passed, scored) attempts at a task."""


@dataclass(frozen=True, slots=True)
class TaskPair:
    """One task on both sides."""

    task: str
    a: Counts
    b: Counts

    @property
    def difference(self) -> float:
        return _share(self.b) - _share(self.a)

    @property
    def flaky(self) -> bool:
        """Attempts of one side disagree."""
        return any(0 < passed < n for passed, n in (self.a, self.b))


@dataclass(frozen=True, slots=True)
class Needed:
    """How many attempts at each task on each side, or else how many tasks, would settle the comparison.

    An estimate: it takes what was seen for what is. Neither is given when the two do not differ at all.
    """

    decided: bool
    attempts: int | None = None
    tasks: int | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A difference above 0 says that `b` is better. `remarks` say what to know before it is believed."""

    a: str
    b: str
    pairs: Sequence[TaskPair]
    only_a: Sequence[str]
    only_b: Sequence[str]
    remarks: Sequence[str] = ()

    @property
    def difference(self) -> float:
        return sum(pair.difference for pair in self.pairs) / len(self.pairs)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 %; None when only one task is common."""
        return paired_interval([pair.difference for pair in self.pairs])

    @property
    def gained(self) -> list[TaskPair]:
        """Tasks that `b` does better, the most first."""
        return sorted((pair for pair in self.pairs if pair.difference > 0), key=lambda pair: -pair.difference)

    @property
    def lost(self) -> list[TaskPair]:
        """Tasks that `b` does worse, the most first."""
        return sorted((pair for pair in self.pairs if pair.difference < 0), key=lambda pair: pair.difference)

    @property
    def p_value(self) -> float:
        return sign_test(len(self.gained), len(self.lost))

    @property
    def needed(self) -> Needed:
        return what_is_needed(self.pairs)

    def to_json(self) -> dict[str, object]:
        return {
            "a": self.a,
            "b": self.b,
            "tasks": len(self.pairs),
            "difference": self.difference,
            "interval": self.interval,
            "p_value": self.p_value,
            "gained": [_pair_json(pair) for pair in self.gained],
            "lost": [_pair_json(pair) for pair in self.lost],
            "flaky": [pair.task for pair in self.pairs if pair.flaky],
            "needed": dataclasses.asdict(self.needed),
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
            "remarks": list(self.remarks),
        }

    def summary(self) -> str:
        """All of it as text, for a person."""
        return _text(self)


def compare_folders(a: Path | str, b: Path | str) -> Comparison:
    """Compare the results in two folders. Raises ConfigError when they have no scored task in common."""
    sides = [_read(Path(path)) for path in (a, b)]
    found = compare(by_task(sides[0].rows), by_task(sides[1].rows), str(a), str(b))
    return dataclasses.replace(found, remarks=_remarks([pair.task for pair in found.pairs], *sides))


def compare(a: Mapping[str, Counts], b: Mapping[str, Counts], name_a: str = "A", name_b: str = "B") -> Comparison:
    """Compare (passed, scored) by task. Raises ConfigError when no task is common."""
    pairs = [TaskPair(task, a[task], b[task]) for task in sorted(a.keys() & b.keys())]
    if not pairs:
        raise ConfigError(f"{name_a} and {name_b} have no scored task in common, so they cannot be compared")
    return Comparison(name_a, name_b, pairs, sorted(a.keys() - b.keys()), sorted(b.keys() - a.keys()))


@dataclass(frozen=True, slots=True)
class _Side:
    """The rollouts that count in a folder, and the contents that each task had there, as far as that was kept."""

    rows: Sequence[Row]
    contents: Mapping[str, set[str]]


def _read(path: Path) -> _Side:
    rows: list[Row] = []
    contents: defaultdict[str, set[str]] = defaultdict(set)
    for job in job_folders(path):
        lock = read_lock(job)
        rows += settled(job, lock)
        for name, task in lock.tasks.items() if lock else ():
            contents[name].add(task.digest)
    return _Side(rows, contents)


def _remarks(tasks: Sequence[str], a: _Side, b: _Side) -> list[str]:
    changed = [
        task
        for task in tasks
        if task in a.contents and task in b.contents and len(a.contents[task] | b.contents[task]) > 1
    ]
    found = [f"not the same content everywhere ({len(changed)}): {', '.join(changed)}"] if changed else []
    for name, side in (("A", a), ("B", b)):
        players = sorted({f"{row.agent} {row.model or ''}".strip() for row in side.rows if row.scored})
        if len(players) > 1:
            found.append(f"{name} takes several together: {', '.join(players)}")
    return found


def what_is_needed(pairs: Sequence[TaskPair]) -> Needed:
    """How much more would make the interval of the difference leave 0, if the difference stays what it is.

    The variance of a task's difference has a part that attempts make smaller and one that only more tasks do.
    """
    n = len(pairs)
    differences = [pair.difference for pair in pairs]
    mean = sum(differences) / n
    interval = paired_interval(differences)
    if interval and not interval[0] <= 0 <= interval[1]:
        return Needed(decided=True)
    if mean == 0 or n < 2:
        return Needed(decided=False)
    t2 = t_quantile(n - 1) ** 2
    one_attempt = sum(_noise(pair.a) + _noise(pair.b) for pair in pairs) / n
    seen = sum(_noise(pair.a) / pair.a[1] + _noise(pair.b) / pair.b[1] for pair in pairs) / n
    between = max(0.0, variance(differences) - seen)
    left = n * mean**2 / t2 - between
    if left > 0:
        return Needed(decided=False, attempts=max(_most(pairs) + 1, math.ceil(one_attempt / left)))
    return Needed(decided=False, tasks=max(n + 1, math.ceil(t2 * variance(differences) / mean**2)))


def _noise(counts: Counts) -> float:
    """The variance of one attempt. A task that always came out the same may yet come out otherwise."""
    passed, n = counts
    share = (passed + 1) / (n + 2)
    return share * (1 - share)


def _most(pairs: Sequence[TaskPair]) -> int:
    return max(n for pair in pairs for _, n in (pair.a, pair.b))


def _share(counts: Counts) -> float:
    return counts[0] / counts[1]


def _pair_json(pair: TaskPair) -> dict[str, object]:
    return {"task": pair.task, "a": list(pair.a), "b": list(pair.b), "difference": pair.difference}


def _text(found: Comparison) -> str:
    share_a = sum(_share(pair.a) for pair in found.pairs) / len(found.pairs)
    share_b = sum(_share(pair.b) for pair in found.pairs) / len(found.pairs)
    width = max(len(found.a), len(found.b))
    interval = found.interval
    between = f" [{interval[0] * 100:+.1f}, {interval[1] * 100:+.1f}]" if interval else ""
    lines = [
        f"{len(found.pairs)} tasks in common",
        f"A  {found.a:<{width}}  {percent(share_a)}",
        f"B  {found.b:<{width}}  {percent(share_b)}",
        f"B - A: {found.difference * 100:+.1f} points{between}, p = {found.p_value:.3g} (exact sign test over tasks)",
        _needed_text(found.needed),
    ]
    for title, pairs in (("better in B", found.gained), ("worse in B", found.lost)):
        if pairs:
            lines.append(f"{title} ({len(pairs)}):")
            lines += [f"  {pair.task}  {pair.a[0]}/{pair.a[1]} -> {pair.b[0]}/{pair.b[1]}" for pair in pairs]
    if flaky := [pair.task for pair in found.pairs if pair.flaky]:
        lines.append(f"flaky ({len(flaky)}): {', '.join(flaky)}")
    for name, tasks in (("A", found.only_a), ("B", found.only_b)):
        if tasks:
            lines.append(f"only in {name} ({len(tasks)}): {', '.join(tasks)}")
    lines += [f"note: {remark}" for remark in found.remarks]
    return "\n".join(lines)


def _needed_text(needed: Needed) -> str:
    if needed.decided:
        return "the difference is clear of 0"
    if needed.attempts:
        return f"undecided; about {needed.attempts} attempts at each task on each side would settle it"
    if needed.tasks:
        return f"undecided; more attempts would not settle it, about {needed.tasks} tasks would"
    return "undecided, and nothing says what would settle it"
