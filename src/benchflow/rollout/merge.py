"""Rewards of a multi-step task: pure rules over the steps that were verified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchflow.rollout.plan import Act


def merge_rewards(
    strategy: Literal["mean", "final"] | None, rewards: Sequence[Mapping[str, float]]
) -> dict[str, float] | None:
    """`mean` is per key over the verified steps, a missing key counting 0; `final` is the last one's. None if none."""
    if not rewards:
        return None
    if strategy == "final" or len(rewards) == 1:
        return dict(rewards[-1])
    keys = dict.fromkeys(key for one in rewards for key in one)
    return {key: sum(one.get(key, 0.0) for one in rewards) / len(rewards) for key in keys}


def gate_passed(act: Act, rewards: Mapping[str, float]) -> bool:
    """Whether the step's `min_reward` lets the next one run. A key that is missing is below any gate."""
    gate = act.step.config.min_reward if act.step else None
    if gate is None:
        return True
    wanted = {"reward": gate} if isinstance(gate, int | float) else gate
    return all(rewards.get(key, float("-inf")) >= least for key, least in wanted.items())
