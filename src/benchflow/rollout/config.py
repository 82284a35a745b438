"""What one rollout is asked to do. Plain data; checked as a whole before anything starts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.rollout.scene import Scene

if TYPE_CHECKING:
    from benchflow.sandbox.base import Sandbox
    from benchflow.verify.rubric import Rubric

type Hook = Callable[[Sandbox], Awaitable[None]]

SANDBOX_SETUP_TIMEOUT = 120.0
"""Seconds that making the sandbox user and its folders may take."""

AGENT_IDLE_TIMEOUT = 1800.0
"""Seconds an agent may send nothing at all during a turn before it counts as hung."""


@dataclass(kw_only=True)
class RolloutConfig:
    """One rollout: scenes played in one sandbox made from one task, then scored.

    `sandbox_user` is the non-root user that agents run as; None runs them as root, and the result says so.
    `agent_timeout` is for all turns together; None takes the task's, which may be none. `pre_agent_hooks` run in the
    started sandbox before any agent, in order. `labels` are written into the result as they are, for whoever asked
    for the rollout to find it again.
    """

    task_path: Path
    scenes: Sequence[Scene] = field(default_factory=lambda: [Scene.single("oracle")])
    environment: str = "auto"
    sandbox_user: str | None = "agent"
    sandbox_setup_timeout: float = SANDBOX_SETUP_TIMEOUT
    pre_agent_hooks: Sequence[Hook] = ()
    agent_timeout: float | None = None
    agent_idle_timeout: float | None = AGENT_IDLE_TIMEOUT
    agent_env: Mapping[str, str] = field(default_factory=dict)
    jobs_dir: Path = Path("jobs")
    job_name: str | None = None
    rubric: Rubric | None = None
    labels: Mapping[str, str | int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.task_path = Path(self.task_path)
        self.jobs_dir = Path(self.jobs_dir)

    @property
    def agents(self) -> list[str]:
        """The agents in the order they first appear."""
        return list(dict.fromkeys(role.agent for scene in self.scenes for role in scene.roles))
