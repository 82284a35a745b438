"""BenchFlow: run AI agents against benchmark tasks. The names below are the public API, loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchflow.errors import ACPError
    from benchflow.job.config import JobConfig, RetryConfig
    from benchflow.job.job import Job
    from benchflow.job.metrics import collect_metrics
    from benchflow.job.summary import JobResult
    from benchflow.rollout.api import SDK, Agent, Environment, Runtime, RuntimeConfig, run
    from benchflow.rollout.config import RolloutConfig
    from benchflow.rollout.lifecycle import Rollout
    from benchflow.rollout.presets import simulated_user
    from benchflow.rollout.result import RolloutResult
    from benchflow.rollout.scene import Role, Scene, Turn
    from benchflow.rollout.user import BaseUser, FunctionUser, PassthroughUser, RoundResult
    from benchflow.sandbox.base import ExecResult, Sandbox
    from benchflow.service.registry import SERVICES
    from benchflow.service.start import build_service_hooks
    from benchflow.verify.base import RewardEvent, RewardFunc, VerifyResult
    from benchflow.verify.judge import LLMJudgeRewardFunc
    from benchflow.verify.rubric import Rubric, StringMatchRewardFunc, TestRewardFunc

__version__ = "0.1.0"

_ROOMS = {
    "errors": ("ACPError",),
    "job.config": ("JobConfig", "RetryConfig"),
    "job.job": ("Job",),
    "job.metrics": ("collect_metrics",),
    "job.summary": ("JobResult",),
    "rollout.api": ("SDK", "Agent", "Environment", "Runtime", "RuntimeConfig", "run"),
    "rollout.config": ("RolloutConfig",),
    "rollout.lifecycle": ("Rollout",),
    "rollout.presets": ("simulated_user",),
    "rollout.result": ("RolloutResult",),
    "rollout.scene": ("Role", "Scene", "Turn"),
    "rollout.user": ("BaseUser", "FunctionUser", "PassthroughUser", "RoundResult"),
    "sandbox.base": ("ExecResult", "Sandbox"),
    "service.registry": ("SERVICES",),
    "service.start": ("build_service_hooks",),
    "verify.base": ("RewardEvent", "RewardFunc", "VerifyResult"),
    "verify.judge": ("LLMJudgeRewardFunc",),
    "verify.rubric": ("Rubric", "StringMatchRewardFunc", "TestRewardFunc"),
}
_HOME = {name: f"benchflow.{room}" for room, names in _ROOMS.items() for name in names}

__all__ = [
    "SDK",
    "SERVICES",
    "ACPError",
    "Agent",
    "BaseUser",
    "Environment",
    "ExecResult",
    "FunctionUser",
    "Job",
    "JobConfig",
    "JobResult",
    "LLMJudgeRewardFunc",
    "PassthroughUser",
    "RetryConfig",
    "RewardEvent",
    "RewardFunc",
    "Role",
    "Rollout",
    "RolloutConfig",
    "RolloutResult",
    "RoundResult",
    "Rubric",
    "Runtime",
    "RuntimeConfig",
    "Sandbox",
    "Scene",
    "StringMatchRewardFunc",
    "TestRewardFunc",
    "Turn",
    "VerifyResult",
    "__version__",
    "build_service_hooks",
    "collect_metrics",
    "run",
    "simulated_user",
]


def __getattr__(name: str) -> Any:
    if home := _HOME.get(name):
        return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'benchflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
