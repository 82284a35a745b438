"""Which agents there are, and how a user names one.

The catalog is a folder of TOML files shipped with the package, with the user's own folder laid over it: a file there
with the same name replaces ours. A reference is one of

    name, alias             gemini, claude
    name@version            claude@0.99.1
    acpx/...                acpx/claude@0.99.1: run by the ACP client acpx
    path of a TOML file     ./my-agent.toml
    a command               "my-agent --acp", ./my-agent

The shipped files are read once per process, the user's own each time they are asked for.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from pydantic import BaseModel, ValidationError

from benchflow.agent.spec import AgentSpec, Launch
from benchflow.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CATALOG = Path(__file__).with_name("catalog")
"""The agents we ship."""

WRAPPER = "acpx"


def user_folder() -> Path:
    """Where a user keeps agents of their own."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "benchflow" / "agents"


def load_agents(folder: Path | None = None) -> dict[str, AgentSpec]:
    """Every agent by name, wrappers left out: ours, then those of `folder` (default: the user's own) over them.

    Raises ConfigError when a file is wrong or two agents claim the same name or alias.
    """
    return {name: spec for name, spec in _load_all(folder).items() if spec.kind != "wrapper"}


def get_agent(ref: str, folder: Path | None = None) -> AgentSpec:
    """The agent that `ref` names. Raises ConfigError, with the nearest names, when there is none."""
    text = ref.strip()
    if text.startswith(f"{WRAPPER}/"):
        inner = get_agent(text.removeprefix(f"{WRAPPER}/"), folder)
        if inner.kind != "acp":
            raise ConfigError(f"{ref!r}: {inner.name} does not speak ACP, so {WRAPPER} cannot run it")
        return inner.run_by(_load_all(folder)[WRAPPER])
    if text.endswith(".toml"):
        return read_agent(Path(text).expanduser())
    agents = load_agents(folder)
    name, at, version = text.partition("@")
    spec = _by_name(agents).get(name)
    if spec is not None:
        return _at_version(spec, version, ref) if at else spec
    own = _command(text)
    if own is None:
        raise _unknown(ref, name, agents)
    return own


def read_agent(path: Path) -> AgentSpec:
    """The agent a TOML file describes. Raises ConfigError that names the file, the key and the nearest valid key."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    return parse_agent(text, str(path))


def parse_agent(text: str, where: str) -> AgentSpec:
    """Like `read_agent`, from text; `where` names it in messages."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: not valid TOML: {error}") from error
    try:
        return AgentSpec.model_validate(raw)
    except ValidationError as error:
        problems = [_problem(item["type"], item["loc"], item["msg"]) for item in error.errors()]
        raise ConfigError("\n".join(f"{where}: {problem}" for problem in problems)) from None


def _load_all(folder: Path | None) -> dict[str, AgentSpec]:
    own = folder or user_folder()
    agents = dict(_shipped())
    for path in sorted(own.glob("*.toml")):
        spec = read_agent(path)
        agents[spec.name] = spec
    _check_names(agents.values())
    return agents


@cache
def _shipped() -> Mapping[str, AgentSpec]:
    specs = [read_agent(path) for path in sorted(CATALOG.glob("*.toml"))]
    return {spec.name: spec for spec in specs}


def _check_names(specs: Iterable[AgentSpec]) -> None:
    owner: dict[str, str] = {}
    for spec in specs:
        for word in (spec.name, *spec.aliases):
            if owner.setdefault(word, spec.name) != spec.name:
                raise ConfigError(f"agents {owner[word]} and {spec.name} both claim the name {word!r}")


def _by_name(agents: Mapping[str, AgentSpec]) -> dict[str, AgentSpec]:
    return {word: spec for spec in agents.values() for word in (spec.name, *spec.aliases)}


def _at_version(spec: AgentSpec, version: str, ref: str) -> AgentSpec:
    if not spec.install.packages:
        raise ConfigError(f"{ref!r}: {spec.name} is not installed from a package, so it has no version to choose")
    if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.+_-]*", version):
        raise ConfigError(f"{ref!r}: {version!r} is not a version", hint=f"write {spec.name}@{spec.version}")
    return spec.at_version(version)


def _command(text: str) -> AgentSpec | None:
    """A plain command: several words, or the path of something executable here."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"agent {text!r}: not a command: {error}") from error
    if not words:
        return None
    program = Path(words[0]).expanduser()
    is_path = "/" in words[0] and program.is_file() and os.access(program, os.X_OK)
    if len(words) == 1 and not is_path:
        return None
    name = re.sub(r"[^a-z0-9._-]+", "-", program.name.lower()).strip("-._") or "command"
    words[0] = str(program.absolute()) if is_path else words[0]
    try:
        launch = Launch(command=tuple(words))
    except ValidationError as error:
        said = "; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors())
        raise ConfigError(f"agent {text!r}: {said}") from None
    return AgentSpec(name=name, description=f"the command {text!r}", launch=launch)


def _unknown(ref: str, name: str, agents: Mapping[str, AgentSpec]) -> ConfigError:
    near = difflib.get_close_matches(name.lower(), _by_name(agents), n=3)
    meant = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(agents)}"
    return ConfigError(
        f"no agent is called {ref!r}; {meant}",
        hint="see `bench agent list`; your own command needs an argument or a path: 'my-agent --acp', './my-agent'",
    )


def _problem(kind: str, location: tuple[int | str, ...], message: str) -> str:
    key = ".".join(str(part) for part in location) or "the file"
    if kind != "extra_forbidden":
        return f"{key}: {message.removeprefix('Value error, ')}"
    near = difflib.get_close_matches(str(location[-1]), _keys_at(location[:-1]), n=1)
    return f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def _keys_at(location: tuple[int | str, ...]) -> list[str]:
    table: type[BaseModel] = AgentSpec
    for part in location:
        if isinstance(part, str) and part in table.model_fields:
            annotation = table.model_fields[part].annotation
            found = [kind for kind in (annotation, *get_args(annotation)) if _is_table(kind)]
            table = found[0] if found else table
    return list(table.model_fields)


def _is_table(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
