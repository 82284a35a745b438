"""Resolves everything a job is going to do and checks all of it, so that every problem is said before anything starts.

A job is a list of measurements (a task, played by some agents with some models), each with a number of attempts.
Planning reads tasks, looks up agents and credentials and asks the sandbox's backend what it can do. It starts nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchflow.errors import BenchflowError, ConfigError
from benchflow.job.identity import measurement_id
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.oracle import check_solution
from benchflow.rollout.plan import CannotRun, make_plan
from benchflow.sandbox.registry import choose_backend
from benchflow.task.digest import task_digest
from benchflow.task.load import load_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from benchflow.job.config import JobConfig
    from benchflow.rollout.plan import Plan
    from benchflow.rollout.scene import Scene

SHOWN = 50
"""Problems that a refusal prints; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One thing that is measured, ready to run. `id` says which it is (see `identity`)."""

    id: str
    task: str
    digest: str
    agent: str
    model: str | None
    config: RolloutConfig
    plan: Plan

    @property
    def memory_mb(self) -> int | None:
        return self.plan.task.config.environment.memory_mb

    @property
    def tags(self) -> list[str]:
        """What the task says it is about."""
        listed = self.plan.task.config.metadata.get("tags")
        return [str(tag) for tag in listed] if isinstance(listed, list) else []


async def measure_all(config: JobConfig, folders: Sequence[Path]) -> list[Measurement]:
    """Every combination of agents, models and tasks, tasks varying fastest, each once however often it was named.

    Raises CannotRun with every problem, or the only one as it is.
    """
    found = Problems(len(folders))
    environment, reason = await _environment(config, found)
    if config.services:
        found.add(ConfigError("services: this release has no services"), "")
    # Without a sandbox one task tells as much about the agents as all of them would.
    cast_folders = folders if reason else folders[:1]
    made: list[Measurement] = []
    digests: dict[Path, str] = {}
    for scenes in config.casts:
        for folder in cast_folders:
            asked = rollout_config(config, scenes, folder, environment)
            with found.of(folder.name):
                made.append(await measure(asked, reason, digests.get(folder)))
                digests[folder] = made[-1].digest
    for folder in folders[len(cast_folders) :]:
        with found.of(folder.name):
            load_task(folder)
    for name in _twice(made):
        found.add(ConfigError(f"two of the tasks are named {name!r}", hint="rename one, or exclude it"), "")
    found.refuse()
    return list({one.id: one for one in made}.values())


async def measure(config: RolloutConfig, reason: str = "", digest: str | None = None) -> Measurement:
    """Resolve one rollout's config; `digest` is the task's, where it is known. Raises ConfigError or TaskError."""
    plan = await make_plan(config)
    players = list(plan.players.values())
    if any(player.spec.name == "oracle" for player in players):
        check_solution(plan.task)
    if digest is None:
        digest = await asyncio.to_thread(task_digest, config.task_path)
    return Measurement(
        id=measurement_id(config, plan, digest),
        task=plan.task.name,
        digest=digest,
        agent="+".join(dict.fromkeys(player.spec.ref for player in players)),
        model="+".join(dict.fromkeys(player.role.model for player in players if player.role.model)) or None,
        config=config,
        plan=replace(plan, backend_reason=reason or plan.backend_reason),
    )


def rollout_config(config: JobConfig, scenes: Sequence[Scene], folder: Path, environment: str) -> RolloutConfig:
    """One rollout of a job; where it is written and how it is labelled is said when it runs."""
    return RolloutConfig(
        task_path=folder,
        scenes=scenes,
        environment=environment,
        sandbox_user=config.sandbox_user,
        sandbox_setup_timeout=config.sandbox_setup_timeout,
        agent_timeout=config.agent_timeout,
        agent_idle_timeout=config.agent_idle_timeout,
        agent_env=config.agent_env,
    )


async def _environment(config: JobConfig, found: Problems) -> tuple[str, str]:
    """The backend for the whole job, chosen once, and why; no reason when there is none."""
    try:
        backend, reason = await choose_backend(config.environment)
    except BenchflowError as error:
        found.add(error, "")
        return config.environment, ""
    return backend.name, reason


def _twice(made: Iterable[Measurement]) -> list[str]:
    folders = {(one.task, one.config.task_path) for one in made}
    return [name for name, count in Counter(name for name, _ in folders).items() if count > 1]


class Problems:
    """What is wrong with the tasks of a job, each thing once, however many tasks have it."""

    def __init__(self, n_tasks: int) -> None:
        self._n_tasks = n_tasks
        self._errors: dict[str, tuple[BenchflowError, set[str]]] = {}

    def add(self, error: BenchflowError, task: str) -> None:
        each = error.problems if isinstance(error, CannotRun) else (error,)
        for one in each:
            self._errors.setdefault(str(one), (one, set()))[1].add(task)

    @contextmanager
    def of(self, task: str) -> Iterator[None]:
        """Takes a problem of that task instead of letting it through."""
        try:
            yield
        except BenchflowError as error:
            self.add(error, task)

    def refuse(self) -> None:
        """Raise what was found: the only problem as it is, several together as CannotRun."""
        if not self._errors:
            return
        listed = [self._line(error, tasks - {""}) for error, tasks in self._errors.values()]
        errors = [error for error, _ in self._errors.values()]
        if len(errors) == 1:
            raise errors[0]
        more = [f"- and {len(listed) - SHOWN} more"] if len(listed) > SHOWN else []
        lines = "\n".join([*listed[:SHOWN], *more])
        raise CannotRun(f"{len(listed)} problems, so nothing was started:\n{lines}", errors)

    def _line(self, error: BenchflowError, tasks: set[str]) -> str:
        text = str(error).replace("\n", "\n  ")
        if len(tasks) < 2:
            return f"- {text}"
        return f"- {text}\n  ({'all' if len(tasks) == self._n_tasks else len(tasks)} tasks)"
