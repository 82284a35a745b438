"""`[verifier]`: how the work is scored, where, and with which safeguards."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from benchflow.task.artifacts import MAIN_SERVICE
from benchflow.task.environment import EnvironmentConfig
from benchflow.task.network import NetworkOverride
from benchflow.task.problem import show
from benchflow.task.values import Env, Finite, Flag, Seconds, Service, Table, Text, User, Words, bad

VerifierMode = Literal["shared", "separate"]

REWARD_RANGE = (0.0, 1.0)
"""Where rewards lie unless the task widens it."""


class CollectHook(Table):
    """A command run after the agent and before artifacts are collected; its failure is noted, not fatal."""

    command: Words
    service: Service = MAIN_SERVICE
    timeout_sec: Seconds = 60.0
    user: User | None = None


class Judge(Table):
    """What a model that judges is shown. `model = None` leaves the choice to the run."""

    model: Words | None = None
    rubric_path: Words = "tests/rubric.toml"
    input_dir: Words = "/app"
    input_type: Literal["deliverables"] = "deliverables"
    context: Text = ""


class Hardening(Table):
    """Safeguards a task may opt out of; every one it does is named in the result.

    `cleanup_conftests`: pytest's configuration is the image's. `remove_hooks`: what would run by itself is taken away.
    `restore_files`: files of the image that a verifier stands on are put back. `clean_env`: the script's environment is
    ours. `git_hooks`: hooks and programs that a repository of the agent names are run. `live`: scores in place, beside
    what the agent left running.
    """

    cleanup_conftests: Flag = True
    remove_hooks: Flag = True
    restore_files: Flag = True
    clean_env: Flag = True
    git_hooks: Flag = False
    live: Flag = False

    @property
    def opt_outs(self) -> tuple[str, ...]:
        """The safeguards that are not at their defaults, as the task file has them."""
        chosen = self.model_dump()
        return tuple(
            f"{name} = {str(chosen[name]).lower()}"
            for name, known in type(self).model_fields.items()
            if chosen[name] != known.default
        )


class MemoryScore(Table):
    """Skills that the agent is expected to change; None means that nothing is expected, `[]` that none should."""

    expected_skills: tuple[Text, ...] | None = None


class VerifierConfig(NetworkOverride):
    """How one score is made. A step has one of its own; nothing of it is inherited from the task's but its box."""

    type: Literal["test-script", "llm-judge"] = "test-script"
    timeout_sec: Seconds = 600.0
    env: Env = Field(default_factory=dict)
    user: User | None = None
    environment_mode: VerifierMode | None = None
    environment: EnvironmentConfig | None = None
    collect: tuple[CollectHook, ...] = ()
    judge: Judge = Judge()
    hardening: Hardening = Hardening()
    memory: MemoryScore = MemoryScore()
    pytest_plugins: tuple[Words, ...] = ()
    reward_range: tuple[Finite, Finite] | None = None

    @field_validator("environment")
    @classmethod
    def _not_shared(cls, value: EnvironmentConfig | None, info: ValidationInfo) -> EnvironmentConfig | None:
        if value is not None and info.data.get("environment_mode") == "shared":
            raise bad(
                'a box of its own is described, but environment_mode is "shared"',
                "one of the two",
                'set environment_mode = "separate", or remove this table',
            )
        return value

    @field_validator("reward_range")
    @classmethod
    def _only_wider(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        low, high = REWARD_RANGE
        if value is not None and not (value[0] <= low and value[1] >= high):
            raise bad(
                f"{show(list(value))} does not hold 0 and 1", "a range that only widens [0, 1]", "write [-1.0, 1.0]"
            )
        return value

    @property
    def own_mode(self) -> VerifierMode | None:
        """What this table alone says about where the verifier runs."""
        if self.environment_mode is None and self.environment is not None:
            return "separate"
        return self.environment_mode
