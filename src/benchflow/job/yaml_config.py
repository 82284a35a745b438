"""A job from a YAML file. Every key is known or refused by name, with the nearest valid one; all mistakes at once.

    task_dir: path/to/tasks            # or source: {repo: owner/name, path: tasks, ref: main}
    agent: [claude, codex]
    model: claude-sonnet-4-6
    concurrency: 8
    retry: {max_retries: 2}

A file with `task` or `task_path` describes one rollout; it is a job of one.
"""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchflow.errors import ConfigError
from benchflow.job.config import SHARED, JobConfig, RetryConfig
from benchflow.job.source import TaskSource
from benchflow.rollout.yaml_config import (
    SETTINGS,
    all_of,
    beside,
    entries,
    of_type,
    optional_text,
    read_prompts,
    read_scenes,
    read_yaml,
    rollout_config,
    settings,
    table,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchflow.rollout.config import RolloutConfig

_PLAIN: Mapping[str, type | tuple[type, ...]] = {
    "max_job_cost": (int, float, type(None)),
    "max_job_tokens": (int, type(None)),
    "concurrency": int,
    "attempts": int,
    "n_tasks": int,
    "shuffle": bool,
    "seed": int,
    "max_disk_mb": int,
    "remove_images": bool,
}
_LISTS = ("include", "exclude")
_PLACES = ("task_dir", "tasks_dir", "source")
_KEYS = (*_PLACES, "dataset", *SETTINGS, *_PLAIN, *_LISTS, "agent", "model", "prompts", "scenes", "retry")


@dataclass(frozen=True, slots=True)
class JobFile:
    """What a file says: where tasks come from, what to do with them, and where results go, if it says so."""

    source: TaskSource
    config: JobConfig
    jobs_dir: Path | None = None
    job_name: str | None = None


def job_from_yaml(path: Path | str) -> JobFile:
    """Read a job. Relative folders of tasks are relative to the file. Raises ConfigError with everything wrong."""
    file = Path(path)
    document = read_yaml(file)
    if isinstance(document, dict) and document.keys() & {"task", "task_path"}:
        return _of_one(rollout_config(document, file))
    if not isinstance(document, dict):
        raise ConfigError(f"{file}: a table is expected")
    _, source, *parts = all_of(
        lambda: table(document, str(file), _KEYS),
        lambda: _source(document, file),
        lambda: settings(document, str(file)),
        lambda: _players(document, str(file)),
        *(
            lambda key=key: {key: _value(key, document[key], file)}
            for key in (*_PLAIN, *_LISTS, "retry")
            if key in document
        ),
    )
    values: dict[str, Any] = {key: value for part in parts for key, value in part.items()}
    jobs_dir, job_name = values.pop("jobs_dir", None), values.pop("job_name", None)
    with _named(file):
        return JobFile(source, JobConfig(**values), jobs_dir, job_name)


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """A mistake in a value says which file it is in."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.message}", hint=error.hint) from None


def _value(key: str, value: object, file: Path) -> object:
    where = f"{file}: {key}"
    if key == "retry":
        with _named(file):
            return _retry(value)
    return _texts(value, where) if key in _LISTS else of_type(value, where, _PLAIN[key])


def _players(found: Mapping[str, object], where: str) -> dict[str, object]:
    """Who plays: scenes, or agents and models with their prompts."""
    if "scenes" in found:
        return {"scenes": read_scenes(found, where)}
    named = [key for key in ("agent", "model") if found.get(key) is not None]
    return {
        **{key: _one_or_more(found[key], f"{where}: {key}") for key in named},
        "prompts": read_prompts(found, where),
    }


def _source(found: Mapping[str, object], file: Path) -> TaskSource:
    given = [key for key in _PLACES if key in found]
    if len(given) != 1:
        raise ConfigError(f"{file}: exactly one of task_dir and source must say where the tasks are")
    dataset = optional_text(found.get("dataset"), f"{file}: dataset")
    if given != ["source"]:
        return TaskSource(path=beside(file, text(found[given[0]], f"{file}: {given[0]}")), dataset=dataset)
    source = table(found["source"], f"{file}: source", ("repo", "path", "ref"))
    return TaskSource(
        repo=text(source.get("repo"), f"{file}: source.repo"),
        repo_path=optional_text(source.get("path"), f"{file}: source.path"),
        ref=optional_text(source.get("ref"), f"{file}: source.ref"),
    )


def _retry(value: object) -> RetryConfig:
    known = [field.name for field in dataclasses.fields(RetryConfig)]
    numbers: dict[str, Any] = dict(table(value, "retry", known))
    return RetryConfig(**numbers)


def _one_or_more(value: object, where: str) -> str | list[str]:
    return _texts(value, where) if isinstance(value, list) else text(value, where)


def _texts(value: object, where: str) -> list[str]:
    return [text(entry, where) for entry in entries(value, where)]


def _of_one(config: RolloutConfig) -> JobFile:
    job = JobConfig(**{name: getattr(config, name) for name in SHARED})
    return JobFile(TaskSource(path=config.task_path), job, config.jobs_dir, config.job_name)
