"""Where the tasks of a job come from, and which of them it takes.

A source is a task, a folder of tasks, a dataset (a `registry.json` or a `dataset.toml`), or a folder of a git
repository. Selecting is a pure function of names, so that the same settings give the same tasks everywhere.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.task.registry import resolve_dataset
from benchflow.task.source import fetch, find_tasks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchflow.job.config import JobConfig


@dataclass(frozen=True, slots=True)
class TaskSource:
    """A place on this machine (`path`, with `dataset` naming one of a registry), or a repository."""

    path: Path | None = None
    dataset: str | None = None
    repo: str | None = None
    repo_path: str | None = None
    ref: str | None = None

    def __post_init__(self) -> None:
        if (self.path is None) == (self.repo is None):
            raise ConfigError("tasks come from a folder or from a repository: name exactly one")

    def to_json(self) -> dict[str, str]:
        """What was asked for, without what was not; a credential in the address of a repository is left out."""
        found = {
            "path": str(self.path.absolute()) if self.path else None,
            "dataset": self.dataset,
            "repo": _public(self.repo) if self.repo else None,
            "repo_path": self.repo_path,
            "ref": self.ref,
        }
        return {key: value for key, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Found:
    """The folders of the tasks, and the commit they were fetched at, if they were fetched."""

    folders: list[Path]
    commit: str | None = None


async def find(source: TaskSource, config: JobConfig) -> Found:
    """The tasks a job takes, in the order they are to run. Raises ConfigError or TaskError."""
    commit = None
    if source.repo:
        fetched = await fetch(source.repo, source.repo_path, source.ref)
        folders = find_tasks(fetched.folder, config.include, config.exclude)
        commit = fetched.commit
    else:
        assert source.path is not None
        folders = await _here(source.path, source.dataset, config)
    return Found(choose(folders, config), commit)


async def _here(path: Path, dataset: str | None, config: JobConfig) -> list[Path]:
    if dataset is None and path.suffix not in (".json", ".toml"):
        return find_tasks(path, config.include, config.exclude)
    found = await resolve_dataset(path, dataset, include=config.include, exclude=config.exclude)
    return [task.folder for task in found]


def choose(folders: Sequence[Path], config: JobConfig) -> list[Path]:
    """The first `n_tasks` of the folders, shuffled first if that is asked for."""
    chosen = list(folders)
    if config.shuffle:
        random.Random(config.seed).shuffle(chosen)  # noqa: S311 - repeatable, not secret
    return chosen[: config.n_tasks]


def _public(repo: str) -> str:
    scheme, separator, rest = repo.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}" if separator else repo
