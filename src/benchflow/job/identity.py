"""Which measurement a rollout is: a digest of everything that changes what is measured, and of nothing else.

Two rollouts of the same measurement are attempts at the same thing. The name and the content of the task (its verifier
included), the agents with their versions, their models, prompts and scenes, the user they run as and the time they get
all count. Concurrency, folders, names of jobs, retries, the sandbox that is chosen and the values of secrets do not.
Nor do budgets, which an agent does not notice before they end it: what one cut off is done again under a larger one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from benchflow.rollout.config import LOCKDOWN_PATHS
from benchflow.skill.model import find_skills, skills_digest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from _typeshed import DataclassInstance

    from benchflow.rollout.config import RolloutConfig
    from benchflow.rollout.plan import Plan, Player
    from benchflow.rollout.scene import Role, Scene

DIGITS = 20
"""Hexadecimal digits of a measurement's name; enough that no two of a billion are the same."""

_SECRET = re.compile(r"key|token|secret|password|credential", re.IGNORECASE)


def measurement_id(config: RolloutConfig, plan: Plan, task_digest: str) -> str:
    """The name of the measurement that `config`, resolved to `plan`, makes on a task with that content."""
    document = {
        "task": [plan.task.name, task_digest],
        "scenes": [_scene(scene, plan.players) for scene in config.scenes],
        "sandbox_user": config.sandbox_user,
        "agent_timeout": config.agent_timeout,
        "agent_idle_timeout": config.agent_idle_timeout,
        "agent_env": _env(config.agent_env),
        "fresh_verifier": config.fresh_verifier,
        "services": [str(service) for service in config.services],
        "skills": _skills(config.skills_dir),
    }
    if config.agent_working_timeout is not None:
        document["agent_working_timeout"] = config.agent_working_timeout
    if tuple(config.lockdown_paths) != LOCKDOWN_PATHS:
        document["lockdown_paths"] = sorted(config.lockdown_paths)
    if config.loop:
        document["loop"] = config.loop
    if config.user is not None:
        document["user"] = [type(config.user).__qualname__, config.max_user_rounds, config.oracle_access]
    if config.allow_models:
        document["allow_models"] = sorted(config.allow_models)
    text = json.dumps(document, sort_keys=True, default=_name)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def fields_of(value: DataclassInstance) -> dict[str, Any]:
    """The fields of a dataclass with their values as they are."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


_HOW = {"launch", "session", "env", "files", "endpoint", "native", "home", "skills"}
"""What an agent's data file says of how it is started and told its task; the rest is words and ways to pay."""


def _scene(scene: Scene, players: Mapping[Role, Player]) -> dict[str, Any]:
    roles = [_role(role, players.get(role)) for role in scene.roles]
    return {**fields_of(scene), "roles": roles, "turns": [fields_of(turn) for turn in scene.turns]}


def _role(role: Role, player: Player | None) -> dict[str, Any]:
    """A role that has no turn is played by nobody, and counts by name alone."""
    if player is None:
        return {"name": role.name}
    spec = player.spec
    return {
        **fields_of(role),
        "agent": spec.ref,
        "packages": [*spec.install.packages, *(spec.through.install.packages if spec.through else ())],
        "how": spec.model_dump(mode="json", include=_HOW),
        "env": _env(role.env),
        "skills_dir": _skills(role.skills_dir),
    }


def _skills(folder: Path | None) -> str | None:
    """Skills count by what they say, wherever they lie."""
    return skills_digest(find_skills(folder)) if folder else None


def _env(env: Mapping[str, str]) -> dict[str, str | None]:
    """Variables by value, but those that look like secrets by name: another key measures the same."""
    return {name: None if _SECRET.search(name) else value for name, value in env.items()}


def _name(value: object) -> str:
    """A function counts by its name, because its address is another in every process."""
    return getattr(value, "__qualname__", None) or str(value)
