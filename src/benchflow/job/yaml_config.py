"""A job from a YAML file. Every key is known or refused by name, with the nearest valid one.

    task_dir: path/to/tasks            # or source: {repo: owner/name, path: tasks, ref: main}
    agent: [claude, codex]
    model: claude-sonnet-4-6
    concurrency: 8
    retry: {max_retries: 2}

A file with `task` or `task_path` describes one rollout; it is a job of one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchflow.errors import ConfigError
from benchflow.job.config import SHARED, JobConfig, RetryConfig
from benchflow.job.source import TaskSource
from benchflow.rollout.yaml_config import (
    SETTINGS,
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
    from collections.abc import Mapping

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
    """Read a job. Relative folders of tasks are relative to the file. Raises ConfigError."""
    file = Path(path)
    document = read_yaml(file)
    if isinstance(document, dict) and document.keys() & {"task", "task_path"}:
        return _of_one(rollout_config(document, file))
    found = table(document, str(file), _KEYS)
    values: dict[str, Any] = settings(found, str(file))
    jobs_dir, job_name = values.pop("jobs_dir", None), values.pop("job_name", None)
    values |= {key: of_type(found[key], f"{file}: {key}", kind) for key, kind in _PLAIN.items() if key in found}
    values |= {key: _texts(found[key], f"{file}: {key}") for key in _LISTS if key in found}
    if "scenes" in found:
        values["scenes"] = read_scenes(found, str(file))
    else:
        values |= {
            key: _one_or_more(found[key], f"{file}: {key}") for key in ("agent", "model") if found.get(key) is not None
        }
        values["prompts"] = read_prompts(found, str(file))
    try:
        if "retry" in found:
            values["retry"] = _retry(found["retry"])
        config = JobConfig(**values)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.message}", hint=error.hint) from None
    return JobFile(_source(found, file), config, jobs_dir, job_name)


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
