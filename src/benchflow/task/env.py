"""`${NAME}` and `${NAME:-default}`: values that the host's environment fills in when a run starts.

In the `env` tables a value is a template only as a whole; everything else is literal, so that a shell snippet
survives. Headers of MCP servers also take references inside a text. A variable that is set to nothing counts as set.
Every table is looked at before anything starts: a variable that only the verifier misses must not cost an agent's run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchflow.task.model import TaskConfig

_WHOLE = re.compile(r"\$\{(?P<name>[^}:]+)(?::-(?P<default>.*))?\}")
_EMBEDDED = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}", re.ASCII)


def resolve_env(table: Mapping[str, str], environ: Mapping[str, str], *, where: str = "env") -> dict[str, str]:
    """`table` with its templates filled in from `environ`.

    Raises ConfigError naming every variable that is neither set nor given a default; `where` is the table's name.
    """
    resolved, missing = _fill(table, environ, where)
    _refuse(missing)
    return resolved


def resolve_text(text: str, environ: Mapping[str, str], *, where: str) -> str:
    """`text` with the references inside it filled in. Raises ConfigError like `resolve_env`."""
    _refuse(_unset(text, environ, where))
    return _EMBEDDED.sub(lambda match: _look_up(match, environ) or "", text)


def check_variables(config: TaskConfig, environ: Mapping[str, str], *, solution: bool, agent: bool) -> None:
    """Raises ConfigError naming every variable that some table of a task will miss in `environ`.

    `environment.env` is left to whoever makes the sandbox of it; `[solution]` counts only when it is to be run, MCP
    servers only when there is an agent to use them.
    """
    missing = [one for where, table in _tables(config) for one in _fill(table, environ, where)[1]]
    if solution:
        missing += _fill(config.solution.env, environ, "solution.env")[1]
    for server in config.environment.mcp_servers if agent else ():
        where = f"mcp_servers.{server.name}"
        missing += _fill(server.env if server.transport == "stdio" else {}, environ, f"{where}.env")[1]
        missing += [one for text in server.headers.values() for one in _unset(text, environ, f"{where}.headers")]
    _refuse(list(dict.fromkeys(missing)))


def taken_from_host(config: TaskConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """Every variable that some template of a task takes from `environ`, by the host's name for it."""
    tables = [table for _, table in _tables(config)]
    tables += [config.environment.env, config.solution.env]
    for server in config.environment.mcp_servers:
        tables += [server.env, server.headers]
    texts = [text for table in tables for text in table.values()]
    found = [match["name"] for text in texts for match in (_WHOLE.fullmatch(text), *_EMBEDDED.finditer(text)) if match]
    return {name: environ[name] for name in found if name in environ}


def _tables(config: TaskConfig) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The tables that every run fills in after the sandbox has started, as (name, table)."""
    for index, command in enumerate(config.environment.setup_commands):
        yield f"environment.setup_commands[{index}].env", command.env
    for verifier in [step.verifier for step in config.steps or ()] or [config.verifier]:
        yield "verifier.env", {**config.verifier.env, **verifier.env}
        box = verifier.environment or config.verifier.environment
        yield "verifier.environment.env", box.env if box else {}


def references(text: str) -> list[tuple[str, str | None]]:
    """Every `${NAME}` inside a text as (name, default)."""
    return [(match["name"], match["default"]) for match in _EMBEDDED.finditer(text)]


def without_references(text: str) -> str:
    return _EMBEDDED.sub("", text)


def _fill(table: Mapping[str, str], environ: Mapping[str, str], where: str) -> tuple[dict[str, str], list[str]]:
    """The table with its templates filled in, and what could not be, in words."""
    resolved: dict[str, str] = {}
    missing: list[str] = []
    for key, value in table.items():
        match = _WHOLE.fullmatch(value)
        if match is None:
            resolved[key] = value
        elif (found := _look_up(match, environ)) is not None:
            resolved[key] = found
        else:
            missing.append(f"{match['name']} (for {where}.{key})")
    return resolved, missing


def _unset(text: str, environ: Mapping[str, str], where: str) -> list[str]:
    return [f"{m['name']} (for {where})" for m in _EMBEDDED.finditer(text) if _look_up(m, environ) is None]


def _look_up(match: re.Match[str], environ: Mapping[str, str]) -> str | None:
    default: str | None = match["default"]
    return environ.get(match["name"], default)


def _refuse(missing: list[str]) -> None:
    if missing:
        raise ConfigError(
            f"environment variables that the task needs are not set: {', '.join(missing)}",
            hint="export them before the run, or put them in a .env file in the current folder",
        )
