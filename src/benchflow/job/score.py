"""A score always comes as passed / scored / lost, with an interval. A lost rollout is never a zero."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from benchflow.job.stats import clustered_interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Scored(Protocol):
    """What a score is made of: a rollout's result, or a row of a job."""

    @property
    def task(self) -> str: ...
    @property
    def reward(self) -> float | None: ...
    @property
    def passed(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Score:
    """`scored` have rewards, `lost` ended without one, and `total` were asked for.

    `interval` is the 95 % interval of the share that passed among the scored, clustered by task.
    """

    passed: int
    scored: int
    lost: int
    total: int
    mean_reward: float | None
    interval: tuple[float, float]

    @property
    def share(self) -> float:
        """Passed among scored; 0 when nothing was scored."""
        return self.passed / self.scored if self.scored else 0.0


def score(results: Sequence[Scored], total: int | None = None) -> Score:
    """The score of results; `total` is how many rollouts were asked for, when not all have ended."""
    rewards = [result.reward for result in results if result.reward is not None]
    return Score(
        passed=sum(result.passed for result in results),
        scored=len(rewards),
        lost=len(results) - len(rewards),
        total=len(results) if total is None else total,
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        interval=clustered_interval(list(by_task(results).values())),
    )


def by_task(results: Iterable[Scored]) -> dict[str, tuple[int, int]]:
    """(passed, scored) of each task that has a score."""
    found: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for result in results:
        if result.reward is not None:
            passed, scored = found[result.task]
            found[result.task] = passed + result.passed, scored + 1
    return dict(found)
