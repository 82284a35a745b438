"""The public names are frozen: adding or removing one is a decision, made here."""

from __future__ import annotations

import subprocess
import sys

import pytest

import benchflow

PUBLIC = {
    *("SDK", "Agent", "Environment", "Runtime", "RuntimeConfig", "run"),
    *("Rollout", "RolloutConfig", "RolloutResult", "Role", "Scene", "Turn"),
    *("BaseUser", "FunctionUser", "PassthroughUser", "RoundResult", "simulated_user"),
    *("Sandbox", "ExecResult", "ACPError", "__version__", "SERVICES", "build_service_hooks"),
    *("Job", "JobConfig", "JobResult", "RetryConfig", "collect_metrics"),
    *("Rubric", "RewardFunc", "RewardEvent", "VerifyResult"),
    *("TestRewardFunc", "StringMatchRewardFunc", "LLMJudgeRewardFunc"),
}

MODULES = {
    "trial": ("Trial", "TrialConfig", "Scene", "Role", "Turn"),
    "trial_yaml": ("trial_config_from_yaml",),
    "rollout": ("Rollout", "RolloutConfig", "RolloutResult"),
    "runtime": ("Agent", "Environment", "Runtime", "RuntimeConfig"),
    "job": ("Job", "JobConfig", "RetryConfig"),
    "evaluation": ("Evaluation", "EvaluationConfig", "EvaluationResult", "RetryConfig"),
    "mcp.reviewer_server": ("serve_reviewer",),
}


def test_public_names_are_exactly_these() -> None:
    assert set(benchflow.__all__) == PUBLIC
    assert dir(benchflow) == sorted(benchflow.__all__)


def test_every_public_name_loads() -> None:
    for name in benchflow.__all__:
        assert getattr(benchflow, name) is not None


@pytest.mark.parametrize("module", MODULES)
def test_every_public_module_can_be_the_first_to_be_imported(module: str) -> None:
    code = f"from benchflow.{module} import {', '.join(MODULES[module])}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(benchflow, "nothing_of_the_kind")


def test_import_is_cheap() -> None:
    code = "import sys, benchflow; print([m for m in ('pydantic', 'aiohttp', 'typer', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
