"""One run: what is asked for (config, scenes), how it goes (lifecycle), what comes out (result)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchflow.rollout.config import RolloutConfig
    from benchflow.rollout.lifecycle import Rollout
    from benchflow.rollout.result import RolloutResult
    from benchflow.rollout.scene import Role, Scene, Turn
    from benchflow.rollout.user import BaseUser, FunctionUser, PassthroughUser, RoundResult

_HOME = {
    "BaseUser": "benchflow.rollout.user",
    "FunctionUser": "benchflow.rollout.user",
    "PassthroughUser": "benchflow.rollout.user",
    "Role": "benchflow.rollout.scene",
    "Rollout": "benchflow.rollout.lifecycle",
    "RolloutConfig": "benchflow.rollout.config",
    "RolloutResult": "benchflow.rollout.result",
    "RoundResult": "benchflow.rollout.user",
    "Scene": "benchflow.rollout.scene",
    "Turn": "benchflow.rollout.scene",
}

__all__ = [
    "BaseUser",
    "FunctionUser",
    "PassthroughUser",
    "Role",
    "Rollout",
    "RolloutConfig",
    "RolloutResult",
    "RoundResult",
    "Scene",
    "Turn",
]


def __getattr__(name: str) -> Any:
    if home := _HOME.get(name):
        return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'benchflow.rollout' has no attribute {name!r}")
