"""A rollout's settings as config.json holds them, and back: what is needed to run it again.

Variables are kept by name only, since their values may be secrets. What only Python has (a function, an object) is kept
as its name, and cannot be read back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchflow.errors import ConfigError
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.scene import Role, Scene, Turn

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACES = ("jobs_dir", "job_name", "labels")
"""Settings that say where a rollout is written, and not what it does."""

PYTHON = "python"
"""The key under which the name of something stands that only Python has."""


def recipe(config: RolloutConfig) -> dict[str, Any]:
    """The settings of `config` as plain values."""
    kept = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    plain = {name: _plain(value) for name, value in kept.items() if name not in PLACES}
    return {**plain, "agent_env": sorted(config.agent_env)}


def config_of(
    document: Mapping[str, Any], environ: Mapping[str, str], where: str, given: Mapping[str, Any] | None = None
) -> RolloutConfig:
    """Settings from `recipe`, with the values of variables from `environ`; what is `given` is taken instead.

    Raises ConfigError that names what is missing, or what only Python has.
    """
    given = given or {}
    names = {field.name for field in dataclasses.fields(RolloutConfig)} - set(PLACES) - set(given)
    values = {name: value for name, value in document.items() if name in names}
    if only := sorted(set(_only_python(values))):
        raise ConfigError(
            f"{where}: it was run from Python with {', '.join(only)}, which a file cannot hold",
            hint="give them again, from Python: read_recording(folder, given={...})",
        )
    try:
        wanted = [*values["agent_env"], *(name for scene in values["scenes"] for name in _variables(scene))]
        if missing := sorted({name for name in wanted if name not in environ}):
            raise ConfigError(
                f"{where}: the values of {', '.join(missing)} are not kept with a rollout",
                hint=f"set them again: {' '.join(f'--agent-env {name}=...' for name in missing)}",
            )
        values["agent_env"] = {name: environ[name] for name in values["agent_env"]}
        values["scenes"] = [_scene(scene, environ) for scene in values["scenes"]]
        return RolloutConfig(**values, **given)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{where}: not a rollout's settings: {type(error).__name__}: {error}") from None


def _plain(value: object) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value.absolute())
    if isinstance(value, Role | Scene | Turn):
        fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {**fields, "env": sorted(value.env)} if isinstance(value, Role) else fields
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [_plain(item) for item in value]
    return {PYTHON: getattr(value, "__qualname__", None) or type(value).__qualname__}


def _only_python(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if list(value) == [PYTHON]:
            yield str(value[PYTHON])
        for item in value.values():
            yield from _only_python(item)
    elif isinstance(value, list):
        for item in value:
            yield from _only_python(item)


def _variables(scene: Mapping[str, Any]) -> Iterator[str]:
    for role in scene["roles"]:
        yield from role["env"]


def _scene(document: Mapping[str, Any], environ: Mapping[str, str]) -> Scene:
    roles = [_role(role, environ) for role in document["roles"]]
    return Scene(**{**document, "roles": roles, "turns": [Turn(**turn) for turn in document["turns"]]})


def _role(document: Mapping[str, Any], environ: Mapping[str, str]) -> Role:
    # Roles are hashed, which lists are not.
    values: dict[str, Any] = {name: _frozen(value) for name, value in document.items()}
    return Role(**{**values, "env": {name: environ[name] for name in document["env"]}})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
