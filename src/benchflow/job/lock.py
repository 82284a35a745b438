"""`job.json`: what a job resolved to when it was planned, so that it can be finished later exactly as it began.

It holds the digest of every task, the versions of agents, the models and the settings. It holds no value of any
environment variable, because those may be secrets; their names are kept, and resuming takes the values from the
environment.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import benchflow
from benchflow.errors import ConfigError
from benchflow.job.config import JobConfig, RetryConfig
from benchflow.job.identity import fields_of
from benchflow.rollout.scene import Role, Scene, Turn
from benchflow.rollout.store import write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from benchflow.job.plan import Measurement
    from benchflow.rollout.plan import Player

_PLAIN = ("name", "created_at", "source", "commit", "sandbox", "reason", "config", "casts")

FORMAT = 1
FILE = "job.json"

type Key = tuple[str, int]
"""A rollout of a job: the measurement it is and the number of the attempt, from 1."""


@dataclass(frozen=True, slots=True)
class LockedTask:
    """A task as it was. `path` is where it was found."""

    path: str
    digest: str
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LockedMeasurement:
    """A measurement as it was planned, and how many attempts it gets. `cast` is a number in the lock's `casts`.

    `played` says which performance it is; see `played`.
    """

    id: str
    task: str
    agent: str
    model: str | None
    attempts: int
    cast: int
    played: str = ""


@dataclass(frozen=True, slots=True)
class JobLock:
    """The resolved inputs of a job. `config` is the job's, as JSON; see `config_of`.

    `casts` says, for each combination of agents and models, who plays each role: agent, version, model, credential.
    `regrading` says since when rollouts are being scored again, as long as not all of them are.
    """

    name: str
    created_at: str
    source: Mapping[str, str]
    commit: str | None
    sandbox: str
    reason: str
    config: Mapping[str, Any]
    casts: Sequence[Mapping[str, Mapping[str, str | None]]]
    tasks: Mapping[str, LockedTask]
    measurements: Sequence[LockedMeasurement]
    regrading: str | None = None

    @property
    def keys(self) -> Iterator[Key]:
        """Every rollout of the job, first attempts first."""
        most = max((one.attempts for one in self.measurements), default=0)
        for attempt in range(1, most + 1):
            yield from ((one.id, attempt) for one in self.measurements if attempt <= one.attempts)

    @property
    def total(self) -> int:
        return sum(one.attempts for one in self.measurements)

    def to_json(self) -> dict[str, object]:
        return {"format": FORMAT, "benchflow": benchflow.__version__, **dataclasses.asdict(self), "total": self.total}


def make_lock(
    name: str, source: Mapping[str, str], commit: str | None, config: JobConfig, measurements: Sequence[Measurement]
) -> JobLock:
    """The lock of a planned job, which has at least one measurement."""
    scenes = [list(cast) for cast in config.casts]
    numbers = {one.id: scenes.index(list(one.config.scenes)) for one in measurements}
    casts = {numbers[one.id]: _players(one.plan.players.values()) for one in measurements}
    first = measurements[0].plan
    return JobLock(
        name=name,
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        source=source,
        commit=commit,
        sandbox=first.backend.name,
        reason=first.backend_reason,
        config=config_json(config),
        casts=[casts.get(number, {}) for number in range(len(scenes))],
        tasks={
            one.task: LockedTask(str(one.config.task_path.absolute()), one.digest, one.tags) for one in measurements
        },
        measurements=[
            LockedMeasurement(one.id, one.task, one.agent, one.model, config.attempts, numbers[one.id], one.played)
            for one in measurements
        ],
    )


def _players(players: Iterable[Player]) -> dict[str, dict[str, str | None]]:
    return {
        player.role.name: {
            "agent": player.spec.ref,
            "version": player.spec.version,
            "model": player.role.model,
            "credential": player.credentials.source,
        }
        for player in players
    }


def write_lock(folder: Path, lock: JobLock) -> None:
    write_json(folder / FILE, lock.to_json())


def read_lock(folder: Path) -> JobLock | None:
    """The lock of a job's folder, or None when it has none. Raises ConfigError when it cannot be understood."""
    file = folder / FILE
    try:
        document = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from None
    return lock_of(document, file)


def lock_of(document: Any, file: Path) -> JobLock:
    try:
        if document["format"] != FORMAT:
            raise ConfigError(f"{file}: is of format {document['format']!r}, which this release does not know")
        lock = JobLock(
            **{name: document[name] for name in _PLAIN},
            tasks={name: LockedTask(**task) for name, task in document["tasks"].items()},
            measurements=[LockedMeasurement(**one) for one in document["measurements"]],
            regrading=document.get("regrading"),
        )
        if unknown := {one.task for one in lock.measurements} - lock.tasks.keys():
            raise ConfigError(f"{file}: measures {min(unknown)}, which is not among its tasks")
        return lock
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file}: is not a job's lock: {type(error).__name__}: {error}") from None


# -- settings ------------------------------------------------------------------------------------------------


def config_json(config: JobConfig) -> dict[str, object]:
    """A job's settings as plain values, variables by name only."""
    document = fields_of(config)
    document["retry"] = dataclasses.asdict(config.retry)
    document["agent_env"] = sorted(config.agent_env)
    document["skills_dir"] = _place(config.skills_dir)
    document["scenes"] = [
        {
            **fields_of(scene),
            "roles": [
                {**fields_of(role), "env": sorted(role.env), "skills_dir": _place(role.skills_dir)}
                for role in scene.roles
            ],
            "turns": [fields_of(turn) for turn in scene.turns],
        }
        for scene in config.scenes
    ]
    return document


def _place(folder: Path | None) -> str | None:
    """Where a folder is for whoever resumes the job, wherever that is done from."""
    return str(Path(folder).absolute()) if folder else None


def config_of(document: Mapping[str, Any], environ: Mapping[str, str], where: str) -> JobConfig:
    """Settings from `config_json`, with variables from `environ`. Raises ConfigError when one is not set."""
    values = dict(document)
    try:
        scenes = values.pop("scenes")
        missing = sorted({name for name in _variables(values, scenes) if name not in environ})
        if missing:
            raise ConfigError(
                f"{where}: the values of {', '.join(missing)} are not kept with the job",
                hint=f"set them again: {' '.join(f'--agent-env {name}=...' for name in missing)}",
            )
        values["agent_env"] = {name: environ[name] for name in values["agent_env"]}
        values["retry"] = RetryConfig(**values["retry"])
        return JobConfig(**values, scenes=[_scene(scene, environ) for scene in scenes])
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{where}: config: {type(error).__name__}: {error}") from None


def _variables(values: Mapping[str, Any], scenes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from values["agent_env"]
    for scene in scenes:
        for role in scene["roles"]:
            yield from role["env"]


def _scene(document: Mapping[str, Any], environ: Mapping[str, str]) -> Scene:
    roles = [Role(**{**role, "env": {name: environ[name] for name in role["env"]}}) for role in document["roles"]]
    return Scene(**{**document, "roles": roles, "turns": [Turn(**turn) for turn in document["turns"]]})
