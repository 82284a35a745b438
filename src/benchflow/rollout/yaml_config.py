"""One rollout from a YAML file. Every key is known or refused by name, with the nearest valid one.

The readers of tables, texts and scenes are shared with the YAML form of a job.
"""

from __future__ import annotations

import dataclasses
import difflib
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from benchflow.errors import ConfigError
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.scene import Role, Scene, Turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SETTINGS: Mapping[str, type | tuple[type, ...]] = {
    "environment": str,
    "sandbox_user": (str, type(None)),
    "sandbox_setup_timeout": (int, float),
    "agent_timeout": (int, float, type(None)),
    "agent_idle_timeout": (int, float, type(None)),
    "agent_env": dict,
    "jobs_dir": str,
    "job_name": str,
}
"""Keys that are taken over as they are, and the types they may have. A job has them too."""

_KEYS = (*SETTINGS, "task", "task_path", "scenes", "agent", "model", "prompts")


def rollout_config_from_yaml(path: Path | str) -> RolloutConfig:
    """Read a rollout's config; a relative task path is relative to the file. Raises ConfigError."""
    file = Path(path)
    return rollout_config(read_yaml(file), file)


def rollout_config(document: object, file: Path) -> RolloutConfig:
    """The config that a document of `file` describes. Raises ConfigError."""
    found = table(document, str(file), _KEYS)
    task = found.get("task_path", found.get("task"))
    if not isinstance(task, str) or ("task" in found and "task_path" in found):
        raise ConfigError(f"{file}: exactly one of task_path and task must name the task's folder")
    scenes = read_scenes(found, str(file)) if "scenes" in found else [_single(found, str(file))]
    return RolloutConfig(task_path=beside(file, task), scenes=scenes, **settings(found, str(file)))  # type: ignore[arg-type]


def read_yaml(file: Path) -> object:
    """What a YAML file says. Raises ConfigError when it cannot be read."""
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not valid YAML: {error}") from None


def beside(file: Path, path: str) -> Path:
    """A path as it is if it leads somewhere from here, else relative to the file that names it."""
    return Path(path) if Path(path).exists() else file.parent / path


def settings(found: Mapping[str, object], where: str) -> dict[str, object]:
    """The values of the keys in `SETTINGS` that are given. Raises ConfigError for a wrong type."""
    return {key: _plain(found[key], f"{where}: {key}", kind) for key, kind in SETTINGS.items() if key in found}


def read_scenes(found: Mapping[str, object], where: str) -> list[Scene]:
    """The scenes under the key `scenes`. Raises ConfigError."""
    if clash := [key for key in ("agent", "model", "prompts") if key in found]:
        raise ConfigError(f"{where}: {clash[0]} and scenes exclude each other; each role has its own agent and model")
    return [
        _scene(scene, f"{where}: scenes[{index}]")
        for index, scene in enumerate(entries(found["scenes"], f"{where}: scenes"))
    ]


def read_prompts(found: Mapping[str, object], where: str) -> list[str | None]:
    """The prompts under the key `prompts`; without it, the task's instruction alone."""
    listed = entries(found.get("prompts", [None]), f"{where}: prompts")
    return [optional_text(prompt, f"{where}: prompts") for prompt in listed]


def _single(found: Mapping[str, object], where: str) -> Scene:
    return Scene.single(
        text(found.get("agent"), f"{where}: agent"),
        optional_text(found.get("model"), f"{where}: model"),
        prompts=read_prompts(found, where),
    )


def _scene(document: object, where: str) -> Scene:
    found = table(document, where, ("name", "roles", "turns"))
    roles = []
    for index, entry in enumerate(entries(found.get("roles"), f"{where}.roles")):
        place = f"{where}.roles[{index}]"
        role = table(entry, place, tuple(field.name for field in dataclasses.fields(Role)))
        roles.append(
            Role(
                text(role.get("name"), f"{place}.name"),
                text(role.get("agent"), f"{place}.agent"),
                optional_text(role.get("model"), f"{place}.model"),
                strings(role.get("env", {}), f"{place}.env"),
            )
        )
    turns = []
    for index, entry in enumerate(entries(found.get("turns"), f"{where}.turns")):
        place = f"{where}.turns[{index}]"
        turn = table(entry, place, ("role", "prompt"))
        turns.append(
            Turn(text(turn.get("role"), f"{place}.role"), optional_text(turn.get("prompt"), f"{place}.prompt"))
        )
    return Scene(roles, turns, text(found.get("name", "main"), f"{where}.name"))


# -- values --------------------------------------------------------------------------------------------------


def table(document: object, where: str, known: Iterable[str]) -> Mapping[str, object]:
    """A table with no key but the known ones. Raises ConfigError that names the nearest."""
    if not isinstance(document, dict):
        raise ConfigError(f"{where}: a table is expected")
    names = list(known)
    for key in document:
        if key not in names:
            near = difflib.get_close_matches(str(key), names, n=1)
            raise ConfigError(
                f"{where}: unknown key {key!r}",
                hint=f"did you mean {near[0]!r}?" if near else f"the keys are: {', '.join(names)}",
            )
    return document


def entries(value: object, where: str) -> list[object]:
    if not isinstance(value, list) or not value:
        raise ConfigError(f"{where}: a list with at least one entry is expected")
    return value


def text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: text is expected")
    return value


def optional_text(value: object, where: str) -> str | None:
    return None if value is None else text(value, where)


def strings(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise ConfigError(f"{where}: a table of texts is expected", hint="put numbers in quotes")
    return value


def of_type(value: object, where: str, kind: type | tuple[type, ...]) -> object:
    """The value, if it is of that type; true and false are no numbers. Raises ConfigError."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{where}: {value!r} is of the wrong type")
    return value


def _plain(value: object, where: str, kind: type | tuple[type, ...]) -> object:
    if kind is dict:
        return strings(value, where)
    of_type(value, where, kind)
    return Path(str(value)) if where.endswith("jobs_dir") else value
