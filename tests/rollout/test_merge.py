"""Rewards of several steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest

from benchflow.rollout.merge import gate_passed, merge_rewards

if TYPE_CHECKING:
    from benchflow.rollout.plan import Act


@pytest.mark.parametrize(
    ("strategy", "rewards", "merged"),
    [
        (None, [], None),
        (None, [{"reward": 0.5}], {"reward": 0.5}),
        (None, [{"reward": 1.0}, {"reward": 0.0}], {"reward": 0.5}),
        ("mean", [{"a": 1.0}, {"b": 1.0}], {"a": 0.5, "b": 0.5}),
        ("final", [{"reward": 1.0}, {"reward": 0.25}], {"reward": 0.25}),
    ],
)
def test_merge(strategy: str, rewards: list[dict[str, float]], merged: dict[str, float] | None) -> None:
    assert merge_rewards(strategy, rewards) == merged  # type: ignore[arg-type]


@dataclass
class Gate:
    min_reward: float | dict[str, float] | None


@dataclass
class FakeStep:
    config: Gate


@dataclass
class FakeAct:
    step: FakeStep | None


@pytest.mark.parametrize(
    ("gate", "rewards", "passes"),
    [
        (None, {}, True),
        (0.5, {"reward": 0.5}, True),
        (0.5, {"reward": 0.4}, False),
        (0.5, {"other": 1.0}, False),
        ({"a": 1.0, "b": 0.0}, {"a": 1.0, "b": 0.0}, True),
        ({"a": 1.0, "b": 0.0}, {"a": 1.0}, False),
    ],
)
def test_gate(gate: float | dict[str, float] | None, rewards: dict[str, float], passes: bool) -> None:
    act = cast("Act", FakeAct(FakeStep(Gate(gate))))
    assert gate_passed(act, rewards) is passes


def test_a_task_without_steps_has_no_gate() -> None:
    assert gate_passed(cast("Act", FakeAct(None)), {})
