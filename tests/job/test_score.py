"""That a lost rollout is not a zero, and that attempts at one task are not as many tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchflow.job.score import score
from benchflow.job.stats import wilson
from benchflow.rollout.result import RolloutResult


def result(reward: float | None, task: str = "t") -> RolloutResult:
    rewards = None if reward is None else {"reward": reward}
    return RolloutResult(task=task, agent="a", model=None, rollout_dir=Path("x"), rewards=rewards)


def test_lost_is_not_a_zero() -> None:
    total = score([result(1.0), result(0.5), result(None)])
    assert (total.passed, total.scored, total.lost, total.total) == (1, 2, 1, 3)
    assert total.mean_reward == 0.75
    assert total.share == 0.5


def test_nothing_scored() -> None:
    total = score([result(None)])
    assert total.mean_reward is None
    assert total.interval == (0.0, 1.0)
    assert total.share == 0.0


def test_what_has_not_ended_is_neither_scored_nor_lost() -> None:
    total = score([result(1.0)], total=5)
    assert (total.scored, total.lost, total.total) == (1, 0, 5)


def test_the_interval_is_clustered_by_task() -> None:
    one_each = score([result(i % 2, f"t{i}") for i in range(20)])
    assert one_each.interval == pytest.approx(wilson(0.5, 20))
    same_task = score([result(i // 4 % 2, f"t{i // 4}") for i in range(20)])
    assert same_task.interval[1] - same_task.interval[0] > one_each.interval[1] - one_each.interval[0]
