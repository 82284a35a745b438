"""The older names of a rollout: a Trial is a Rollout."""

from benchflow.rollout.config import RolloutConfig as TrialConfig
from benchflow.rollout.lifecycle import Rollout as Trial
from benchflow.rollout.result import RolloutResult as TrialResult
from benchflow.rollout.scene import Role, Scene, Turn
from benchflow.rollout.user import BaseUser, FunctionUser, PassthroughUser, RoundResult

__all__ = [
    "BaseUser",
    "FunctionUser",
    "PassthroughUser",
    "Role",
    "RoundResult",
    "Scene",
    "Trial",
    "TrialConfig",
    "TrialResult",
    "Turn",
]
