"""`${NAME}` and `${NAME:-default}`: values that the host's environment fills in when a run starts.

In the `env` tables a value is a template only as a whole; everything else is literal, so that a shell snippet
survives. Headers of MCP servers also take references inside a text. A variable that is set to nothing counts as set.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_WHOLE = re.compile(r"\$\{(?P<name>[^}:]+)(?::-(?P<default>.*))?\}")
_EMBEDDED = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}", re.ASCII)


def resolve_env(table: Mapping[str, str], environ: Mapping[str, str], *, where: str = "env") -> dict[str, str]:
    """`table` with its templates filled in from `environ`.

    Raises ConfigError naming every variable that is neither set nor given a default; `where` is the table's name.
    """
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
    _refuse(missing)
    return resolved


def resolve_text(text: str, environ: Mapping[str, str], *, where: str) -> str:
    """`text` with the references inside it filled in. Raises ConfigError like `resolve_env`."""
    missing = [f"{m['name']} (for {where})" for m in _EMBEDDED.finditer(text) if _look_up(m, environ) is None]
    _refuse(missing)
    return _EMBEDDED.sub(lambda match: _look_up(match, environ) or "", text)


def references(text: str) -> list[tuple[str, str | None]]:
    """Every `${NAME}` inside a text as (name, default)."""
    return [(match["name"], match["default"]) for match in _EMBEDDED.finditer(text)]


def without_references(text: str) -> str:
    return _EMBEDDED.sub("", text)


def _look_up(match: re.Match[str], environ: Mapping[str, str]) -> str | None:
    default: str | None = match["default"]
    return environ.get(match["name"], default)


def _refuse(missing: list[str]) -> None:
    if missing:
        raise ConfigError(
            f"environment variables that the task needs are not set: {', '.join(missing)}",
            hint="export them before the run, or put them in a .env file in the current folder",
        )
