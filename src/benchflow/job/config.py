"""What a job is asked to do. Plain data; every value is checked when it is made, all mistakes at once.

An agent or a model may be one or several: a job is the matrix of agents, models, tasks and attempts. Where scenes are
given, they name the agents and models themselves.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.rollout.config import (
    AGENT_IDLE_TIMEOUT,
    BRANCH_CONCURRENCY,
    LOCKDOWN_PATHS,
    SANDBOX_SETUP_TIMEOUT,
    RolloutConfig,
    check_limit,
)
from benchflow.rollout.presets import parse_loop
from benchflow.rollout.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

LIMITS = ("max_cost", "max_tokens", "max_job_cost", "max_job_tokens")
"""Settings that may be other ones when a job goes on: what they cut off is then done again."""

CONCURRENCY = 4
"""Rollouts at the same time, unless the job says otherwise."""


@dataclass(frozen=True, kw_only=True)
class RetryConfig:
    """How often, and after how long, a rollout that was lost to a passing cause is tried again.

    The wait before the n-th retry is `min_wait_sec * wait_multiplier ** (n - 1)`, at most `max_wait_sec`.
    """

    max_retries: int = 2
    wait_multiplier: float = 2.0
    min_wait_sec: float = 1.0
    max_wait_sec: float = 30.0

    def __post_init__(self) -> None:
        _refuse("retry", self._problems())

    def _problems(self) -> Iterator[str]:
        if not _whole(self.max_retries, 0):
            yield f"max_retries is {self.max_retries!r}; a whole number, 0 or more, is expected"
        if not _finite(self.wait_multiplier, 1):
            yield f"wait_multiplier is {self.wait_multiplier!r}; a number, 1 or more, is expected"
        for name in ("min_wait_sec", "max_wait_sec"):
            if not _finite(getattr(self, name), 0):
                yield f"{name} is {getattr(self, name)!r}; a number of seconds, 0 or more, is expected"

    def wait(self, retry: int) -> float:
        """Seconds to wait before the retry of that number, counted from 1."""
        if self.min_wait_sec <= 0:
            return 0.0
        # Compared as logarithms, because the power itself overflows long before anybody would wait for it.
        grown = math.log(self.min_wait_sec) + (retry - 1) * math.log(self.wait_multiplier)
        limit = self.max_wait_sec
        return limit if limit <= 0 or grown >= math.log(limit) else math.exp(grown)


@dataclass(kw_only=True)
class JobConfig:
    """Everything about a job but where its tasks are and where its results go.

    `attempts` is how many rollouts each task gets from each agent and model. `n_tasks` takes the first so many of the
    tasks that pass `include` and `exclude`, after shuffling if `shuffle` is set; `seed` makes the order repeatable.
    `max_job_cost` and `max_job_tokens` are for all rollouts together, over all runs of the job, those that were lost
    included; `max_cost` and `max_tokens` are for each. Nothing more is started when all jobs and the sandbox's caches
    hold more than `max_disk_mb`. `remove_images` removes what was built for a task when the job is done with it. The
    rest is as in `RolloutConfig`.
    """

    agent: str | Sequence[str] = "oracle"
    model: str | Sequence[str | None] | None = None
    prompts: Sequence[str | None] = (None,)
    scenes: Sequence[Scene] = ()
    environment: str = "auto"
    concurrency: int = CONCURRENCY
    attempts: int = 1
    retry: RetryConfig = field(default_factory=RetryConfig)
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    n_tasks: int | None = None
    shuffle: bool = False
    seed: int = 0
    sandbox_user: str | None = "agent"
    sandbox_setup_timeout: float = SANDBOX_SETUP_TIMEOUT
    loop: str | None = None
    branch_concurrency: int = BRANCH_CONCURRENCY
    agent_timeout: float | None = None
    agent_idle_timeout: float | None = AGENT_IDLE_TIMEOUT
    agent_working_timeout: float | None = None
    max_cost: float | None = None
    max_tokens: int | None = None
    max_job_cost: float | None = None
    max_job_tokens: int | None = None
    allow_models: Sequence[str] = ()
    agent_env: Mapping[str, str] = field(default_factory=dict)
    keep_workspace: bool = False
    max_disk_mb: int | None = None
    remove_images: bool = False
    services: Sequence[str] = ()
    skills_dir: Path | None = None
    lockdown_paths: Sequence[str] = LOCKDOWN_PATHS

    def __post_init__(self) -> None:
        _refuse("job", self._problems())

    def _problems(self) -> Iterator[str]:
        for name in ("concurrency", "attempts", "branch_concurrency"):
            if not _whole(getattr(self, name), 1):
                yield f"{name} is {getattr(self, name)!r}; a whole number, 1 or more, is expected"
        if self.n_tasks is not None and not _whole(self.n_tasks, 1):
            yield f"n_tasks is {self.n_tasks!r}; a whole number, 1 or more, is expected"
        if self.max_disk_mb is not None and not _whole(self.max_disk_mb, 1):
            yield f"max_disk_mb is {self.max_disk_mb!r}; a whole number of megabytes, 1 or more, is expected"
        for name in ("agent_working_timeout", *LIMITS):
            try:
                check_limit(name, getattr(self, name))
            except ConfigError as error:
                yield error.message
        if self.loop is not None:
            try:
                parse_loop(self.loop)
            except ConfigError as error:
                yield f"{error.message} ({error.hint})"
        if not self.casts:
            yield "agent and model must each name at least one"
        if isinstance(self.include, str) or isinstance(self.exclude, str):
            yield "include and exclude are lists of names or globs"

    @property
    def casts(self) -> list[Sequence[Scene]]:
        """The scenes of each combination of agent and model; one, when scenes are given."""
        if self.scenes:
            return [self.scenes]
        agents = [self.agent] if isinstance(self.agent, str) else list(self.agent)
        models = [self.model] if self.model is None or isinstance(self.model, str) else list(self.model)
        return [
            [Scene.single(agent, model, prompts=self.prompts)]
            for agent in dict.fromkeys(agents)
            for model in dict.fromkeys(models)
        ]


SHARED = frozenset(
    {field.name for field in dataclasses.fields(JobConfig)}
    & {field.name for field in dataclasses.fields(RolloutConfig)}
)
"""Settings that a job hands to each of its rollouts as they are."""


def _refuse(what: str, problems: Iterator[str]) -> None:
    if found := list(problems):
        raise ConfigError(f"{what}: " + "; ".join(found))


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _finite(value: object, least: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= least
