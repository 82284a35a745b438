"""The ways a Python user starts one rollout. Thin: each builds a `RolloutConfig` and runs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, overload

from benchflow.errors import ConfigError
from benchflow.rollout.config import AGENT_IDLE_TIMEOUT, SANDBOX_SETUP_TIMEOUT, RolloutConfig
from benchflow.rollout.lifecycle import Rollout
from benchflow.rollout.scene import Scene
from benchflow.sandbox.registry import backends_in_use

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchflow.rollout.result import RolloutResult


@dataclass(frozen=True)
class Agent:
    """An agent by name, with the model it is to use."""

    name: str
    model: str | None = None


@dataclass(frozen=True)
class Environment:
    """A task and the sandbox to run it in."""

    task_path: Path
    backend: str = "auto"

    @classmethod
    def from_task(cls, task_path: Path | str, backend: str = "auto") -> Environment:
        return cls(Path(task_path), backend)


@dataclass(kw_only=True)
class RuntimeConfig:
    """Settings of a run that are neither the agent's nor the task's."""

    sandbox_user: str | None = "agent"
    sandbox_setup_timeout: float = SANDBOX_SETUP_TIMEOUT
    agent_timeout: float | None = None
    agent_idle_timeout: float | None = AGENT_IDLE_TIMEOUT
    agent_working_timeout: float | None = None
    max_cost: float | None = None
    max_tokens: int | None = None
    allow_models: Sequence[str] = ()
    agent_env: Mapping[str, str] = field(default_factory=dict)
    jobs_dir: Path = Path("jobs")
    job_name: str | None = None


@dataclass(frozen=True)
class Runtime:
    """An agent in an environment, ready to be executed."""

    environment: Environment
    agent: Agent
    config: RuntimeConfig | None = None

    async def execute(self) -> RolloutResult:
        """Run it. Raises ConfigError or TaskError when it cannot be planned."""
        return await run(self.agent, self.environment, self.config)


class SDK:
    """The oldest way in: everything as arguments of one call."""

    async def run(
        self,
        task_path: Path | str,
        agent: str,
        model: str | None = None,
        environment: str = "auto",
        prompts: Sequence[str | None] = (None,),
        config: RuntimeConfig | None = None,
    ) -> RolloutResult:
        """One rollout with the prompts one after the other in one session; None is the task's instruction."""
        scene = Scene.single(agent, model, prompts=prompts)
        return await _run(_config(Path(task_path), scene, environment, config))


@overload
async def run(subject: RolloutConfig, /) -> RolloutResult: ...
@overload
async def run(subject: Agent, environment: Environment, config: RuntimeConfig | None = None, /) -> RolloutResult: ...
@overload
async def run(
    subject: str,
    /,
    *,
    task_path: Path | str,
    model: str | None = None,
    config: RuntimeConfig | None = None,
    environment: str = "auto",
) -> RolloutResult: ...
async def run(
    subject: RolloutConfig | Agent | str,
    environment: Environment | str = "auto",
    config: RuntimeConfig | None = None,
    *,
    task_path: Path | str | None = None,
    model: str | None = None,
) -> RolloutResult:
    """Run one rollout: from a config, from an agent and an environment, or from an agent's name and a task.

    Raises ConfigError or TaskError when it cannot be planned; whatever happens later is in the result.
    """
    if isinstance(subject, RolloutConfig):
        return await _run(subject)
    if isinstance(subject, Agent):
        if not isinstance(environment, Environment):
            raise ConfigError("run(agent, environment): the second argument is an Environment")
        scene = Scene.single(subject.name, subject.model)
        return await _run(_config(environment.task_path, scene, environment.backend, config))
    if task_path is None or not isinstance(environment, str):
        raise ConfigError("run('agent', task_path=...): say which task to run")
    return await _run(_config(Path(task_path), Scene.single(subject, model), environment, config))


def _config(task_path: Path, scene: Scene, environment: str, config: RuntimeConfig | None) -> RolloutConfig:
    return RolloutConfig(
        task_path=task_path, scenes=[scene], environment=environment, **vars(config or RuntimeConfig())
    )


async def _run(config: RolloutConfig) -> RolloutResult:
    async with backends_in_use():
        return await Rollout(config).run()
