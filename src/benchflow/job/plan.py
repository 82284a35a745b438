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
from benchflow.job.config import SHARED
from benchflow.job.identity import measurement_id
from benchflow.job.played import played_digest
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.plan import CannotRun, make_plan, uncounted
from benchflow.sandbox.registry import choose_backend
from benchflow.task.digest import digest_of, file_digests
from benchflow.task.load import load_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from benchflow.job.config import JobConfig
    from benchflow.rollout.plan import Casting, Plan
    from benchflow.rollout.scene import Scene

SHOWN = 50
"""Problems that a refusal prints; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One thing that is measured, ready to run. `id` says which it is (see `identity`), `played` which performance."""

    id: str
    played: str
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


async def measure_all(config: JobConfig, folders: Sequence[Path], cast: Casting | None = None) -> list[Measurement]:
    """Every combination of agents, models and tasks, tasks varying fastest, each once however often it was named.

    `cast` is as in `make_plan`. Raises CannotRun with every problem, or the only one as it is.
    """
    found = Problems(len(folders))
    environment, reason = await _environment(config, found)
    # Without a sandbox one task tells as much about the agents as all of them would.
    cast_folders = folders if reason else folders[:1]
    made: list[Measurement] = []
    contents: dict[Path, Mapping[str, str]] = {}
    for scenes in config.casts:
        for folder in cast_folders:
            asked = rollout_config(config, scenes, folder, environment)
            with found.of(folder.name):
                made.append(await measure(asked, reason, contents, cast=cast))
    for folder in folders[len(cast_folders) :]:
        with found.of(folder.name):
            load_task(folder)
    limits = {"max_job_cost": config.max_job_cost, "max_job_tokens": config.max_job_tokens}
    for one in made:
        for error in uncounted(one.plan.players.values(), limits):
            found.add(error, one.task)
    for name in _twice(made):
        found.add(ConfigError(f"two of the tasks are named {name!r}", hint="rename one, or exclude it"), "")
    found.refuse()
    return list({one.id: one for one in made}.values())


async def measure(
    config: RolloutConfig,
    reason: str = "",
    contents: dict[Path, Mapping[str, str]] | None = None,
    *,
    cast: Casting | None = None,
) -> Measurement:
    """Resolve one rollout's config. Raises ConfigError or TaskError.

    `contents` remembers the files of tasks from one call to the next; `cast` is as in `make_plan`.
    """
    plan = await make_plan(config, cast=cast)
    players = list(plan.players.values())
    solved = any(player.spec.name == "oracle" for player in players)
    known = {} if contents is None else contents
    folder = config.task_path
    if folder not in known:
        known[folder] = await asyncio.to_thread(file_digests, folder)
    digest = digest_of(known[folder])
    # Where the verifier had a say in what was done, another verifier would have led to other work.
    seen = digest if config.scored_between else played_digest(folder, known[folder], solved=solved)
    return Measurement(
        id=measurement_id(config, plan, digest),
        played=measurement_id(config, plan, seen),
        task=plan.task.name,
        digest=digest,
        agent="+".join(dict.fromkeys(player.spec.ref for player in players)),
        model="+".join(dict.fromkeys(player.role.model for player in players if player.role.model)) or None,
        config=config,
        plan=replace(plan, backend_reason=reason or plan.backend_reason, digest=digest),
    )


def rollout_config(config: JobConfig, scenes: Sequence[Scene], folder: Path, environment: str) -> RolloutConfig:
    """One rollout of a job; where it is written and how it is labelled is said when it runs."""
    given = {name: getattr(config, name) for name in SHARED}
    return RolloutConfig(**{**given, "task_path": folder, "scenes": scenes, "environment": environment})


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
