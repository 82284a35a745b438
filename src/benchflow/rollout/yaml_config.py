"""One rollout from a YAML file. Every key is known or refused by name, with the nearest valid one.

The readers of tables, texts and scenes are shared with the YAML form of a job.
"""

from __future__ import annotations

import dataclasses
import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from benchflow.errors import ConfigError
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.scene import Role, Scene, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SETTINGS: Mapping[str, type | tuple[type, ...]] = {
    "environment": str,
    "sandbox_user": (str, type(None)),
    "sandbox_setup_timeout": (int, float),
    "loop": (str, type(None)),
    "branch_concurrency": int,
    "agent_timeout": (int, float, type(None)),
    "agent_idle_timeout": (int, float, type(None)),
    "agent_working_timeout": (int, float, type(None)),
    "max_cost": (int, float, type(None)),
    "max_tokens": (int, type(None)),
    "allow_models": list,
    "agent_env": dict,
    "keep_workspace": bool,
    "services": list,
    "skills_dir": str,
    "lockdown_paths": list,
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
    """The values of the keys in `SETTINGS` that are given. Raises ConfigError for every wrong type."""
    keys = [key for key in SETTINGS if key in found]
    values = all_of(*(lambda key=key: _plain(found[key], f"{where}: {key}", SETTINGS[key]) for key in keys))
    return dict(zip(keys, values, strict=True))


def read_scenes(found: Mapping[str, object], where: str) -> list[Scene]:
    """The scenes under the key `scenes`. Raises ConfigError."""
    if clash := [key for key in ("agent", "model", "prompts") if key in found]:
        raise ConfigError(f"{where}: {clash[0]} and scenes exclude each other; each role has its own agent and model")
    return _each(found["scenes"], f"{where}: scenes", _scene)


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
    found = table(document, where, field_names(Scene))
    roles, turns = all_of(
        lambda: _each(found.get("roles"), f"{where}.roles", _role),
        lambda: _each(found.get("turns"), f"{where}.turns", _turn),
    )
    return Scene(roles, turns, text(found.get("name", "main"), f"{where}.name"), **_given(found, where, _SCENE))


def _role(document: object, where: str) -> Role:
    found = table(document, where, field_names(Role))
    return Role(
        text(found.get("name"), f"{where}.name"),
        text(found.get("agent"), f"{where}.agent"),
        optional_text(found.get("model"), f"{where}.model"),
        strings(found.get("env", {}), f"{where}.env"),
        **_given(found, where, _ROLE),
    )


def _turn(document: object, where: str) -> Turn:
    found = table(document, where, field_names(Turn))
    return Turn(
        text(found.get("role"), f"{where}.role"),
        optional_text(found.get("prompt"), f"{where}.prompt"),
        **_given(found, where, _TURN),
    )


_SCENE: Mapping[str, type | tuple[type, ...]] = {
    "max_rounds": (int, type(None)),
    "stop_when": (str, list, type(None)),
    "verify_rounds": bool,
}
_ROLE: Mapping[str, type | tuple[type, ...]] = {
    "access": str,
    "oracle_access": bool,
    "reads_trajectory": list,
    "timeout": (int, float, type(None)),
    "skills_dir": (str, type(None)),
}
_TURN: Mapping[str, type | tuple[type, ...]] = {"again": (str, type(None)), "best_of": int}


def field_names(kind: type[Scene | Role | Turn]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _given(found: Mapping[str, object], where: str, kinds: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """The values of the keys in `kinds` that are given. Raises ConfigError for a wrong type."""
    given: dict[str, Any] = {}
    for key, kind in kinds.items():
        if key in found:
            value = of_type(found[key], f"{where}.{key}", kind)
            given[key] = [text(one, f"{where}.{key}") for one in value] if isinstance(value, list) else value
    return given


def _each[T](value: object, where: str, read: Callable[[object, str], T]) -> list[T]:
    """Every entry of a list, read. Raises ConfigError with what is wrong in all of them."""
    listed = entries(value, where)
    return all_of(*(lambda at=at, one=one: read(one, f"{where}[{at}]") for at, one in enumerate(listed)))


def all_of(*readings: Callable[[], Any]) -> list[Any]:
    """The outcomes of all. Raises ConfigError with everything that went wrong, or the only thing as it is."""
    outcomes, wrong = [], []
    for reading in readings:
        try:
            outcomes.append(reading())
        except ConfigError as error:
            wrong.append(error)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        raise ConfigError("\n".join(str(error) for error in wrong))
    return outcomes


# -- values --------------------------------------------------------------------------------------------------


def table(document: object, where: str, known: Iterable[str]) -> Mapping[str, object]:
    """A table with no key but the known ones. Raises ConfigError that names the nearest."""
    if not isinstance(document, dict):
        raise ConfigError(f"{where}: a table is expected")
    names = list(known)
    all_of(*(lambda key=key: _refuse_key(key, where, names) for key in document if key not in names))
    return document


def _refuse_key(key: object, where: str, names: list[str]) -> None:
    near = difflib.get_close_matches(str(key), names, n=1)
    raise ConfigError(
        f"{where}: unknown key {key!r}",
        hint=f"did you mean {near[0]!r}?" if near else f"the keys are: {', '.join(names)}",
    )


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
    if where.endswith("allow_models"):
        return [text(entry, where) for entry in entries(value, where)]
    return Path(str(value)) if where.endswith("jobs_dir") else value
