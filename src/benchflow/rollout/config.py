"""What one rollout is asked to do. Plain data; checked as a whole before anything starts."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.rollout.presets import loop_user, looped_scenes
from benchflow.rollout.scene import Scene
from benchflow.rollout.user import MAX_USER_ROUNDS

if TYPE_CHECKING:
    from benchflow.rollout.user import BaseUser
    from benchflow.sandbox.base import Sandbox
    from benchflow.service.registry import Service
    from benchflow.verify.rubric import Rubric

type Hook = Callable[[Sandbox], Awaitable[None]]

SANDBOX_SETUP_TIMEOUT = 120.0
"""Seconds that making the sandbox user and its folders may take."""

AGENT_IDLE_TIMEOUT = 1800.0
"""Seconds an agent may send nothing at all during a turn before it counts as hung."""

LOCKDOWN_PATHS = ("/solution", "/tests")
"""What agents cannot read where the image has it, unless the rollout says otherwise."""

BRANCH_CONCURRENCY = 2
"""Branches of one rollout that run at the same time, unless it says otherwise."""


def check_limit(name: str, value: object) -> None:
    """Raises ConfigError unless it is a number, 0 or more, or None for no limit."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    if value is not None and not number:
        raise ConfigError(f"{name} is {value!r}; a number, 0 or more, is expected")


@dataclass(kw_only=True)
class RolloutConfig:
    """One rollout: scenes played in one sandbox made from one task, then scored.

    `sandbox_user` is the non-root user that agents run as; None or `root` is root, and the result says so.
    `agent_timeout` is for all turns together; None takes the task's, which may be none. `agent_working_timeout` is the
    same without the time that was spent waiting for the provider. `max_cost` (dollars) and `max_tokens` (read and
    written together) end the rollout, which is then scored as it stands. `allow_models` are names or patterns of models
    that agents may ask for beside their role's own. `pre_agent_hooks` run in the started sandbox before any agent, in
    order; `services` are started before them. `skills_dir` holds the skills of
    every role that has none of its own. `labels` are written into the result as they are, for whoever asked
    for the rollout to find it again. `keep_workspace` keeps what the agents left, so that it can be scored again.

    `user` decides the prompts of the one role that there then is, for at most `max_user_rounds` rounds; with
    `oracle_access` it is told the solution, which the agent is not. `loop` is one of the presets, as `self-review:2`.
    With `fresh_verifier` the verifier gets a new sandbox with a copy of the workspace, and nothing else of the agent's.
    `branch_concurrency` bounds how many branches of a turn with `best_of` run at a time.
    """

    task_path: Path
    scenes: Sequence[Scene] = field(default_factory=lambda: [Scene.single("oracle")])
    environment: str = "auto"
    sandbox_user: str | None = "agent"
    sandbox_setup_timeout: float = SANDBOX_SETUP_TIMEOUT
    pre_agent_hooks: Sequence[Hook] = ()
    services: Sequence[str | Service] = ()
    skills_dir: Path | None = None
    user: BaseUser | None = None
    max_user_rounds: int = MAX_USER_ROUNDS
    oracle_access: bool = False
    lockdown_paths: Sequence[str] = LOCKDOWN_PATHS
    loop: str | None = None
    branch_concurrency: int = BRANCH_CONCURRENCY
    agent_timeout: float | None = None
    agent_idle_timeout: float | None = AGENT_IDLE_TIMEOUT
    agent_working_timeout: float | None = None
    max_cost: float | None = None
    max_tokens: int | None = None
    allow_models: Sequence[str] = ()
    agent_env: Mapping[str, str] = field(default_factory=dict)
    jobs_dir: Path = Path("jobs")
    job_name: str | None = None
    keep_workspace: bool = False
    rubric: Rubric | None = None
    fresh_verifier: bool = False
    labels: Mapping[str, str | int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.task_path = Path(self.task_path)
        self.jobs_dir = Path(self.jobs_dir)
        self.skills_dir = Path(self.skills_dir) if self.skills_dir else None
        self.sandbox_user = None if self.sandbox_user == "root" else self.sandbox_user
        for name in ("agent_working_timeout", "max_cost", "max_tokens"):
            check_limit(name, getattr(self, name))

    @property
    def agents(self) -> list[str]:
        """The agents in the order they first appear."""
        return list(dict.fromkeys(role.agent for scene in self.scenes for role in scene.roles))

    @property
    def played_scenes(self) -> Sequence[Scene]:
        """The scenes with the turns that `loop` adds. Raises ConfigError."""
        return looped_scenes(self.scenes, self.loop)

    @property
    def scored_between(self) -> bool:
        """Whether what the verifier says decides how the rollout goes on, and not only what it is worth."""
        scenes = self.played_scenes
        chosen = any(turn.best_of > 1 for scene in scenes for turn in scene.turns)
        return chosen or self.driver is not None or any(scene.stop_when is not None for scene in scenes)

    @property
    def driver(self) -> tuple[BaseUser, int] | None:
        """The user that decides the prompts, and for how many rounds; None when the scenes say them."""
        return (self.user, self.max_user_rounds) if self.user is not None else loop_user(self.loop)
