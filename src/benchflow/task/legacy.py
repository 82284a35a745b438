"""Older and other spellings, brought to the one spelling that the models know.

`modernise` works on the raw document, before any model sees it, so that a table with several faults reports all of
them. Where an old and a new key say the same, the old one is dropped with a warning; where they contradict each
other, that is an error, except for `allow_internet`, which by the format's own rule gives way.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from benchflow.task.problem import Issue, KeyPath, dotted, show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

type Raw = dict[str, object]

TABLE_ALIASES = {"sandbox": "environment", "oracle": "solution"}
"""Top-level tables that go by a second name."""

DEPRECATED = {"memory": "memory_mb", "storage": "storage_mb", "allow_internet": "network_mode"}
"""Keys of an environment table that have a successor."""

_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([KMG])", re.ASCII)
_MEGABYTES = {"K": 1 / 1024, "M": 1.0, "G": 1024.0}


def modernise(raw: Mapping[str, object]) -> tuple[Raw, list[Issue]]:
    """A copy of `raw` in today's spelling, and what there is to say about the rest. Never raises."""
    issues: list[Issue] = []
    document = dict(raw)
    for alias, name in TABLE_ALIASES.items():
        issues += _merge_alias(document, alias, name)
    issues += _rename(document, (), "version", "schema_version", document.get("version"))
    for path, table in _environments(document):
        issues += _sizes(table, path)
        issues += _internet(table, path)
    return document, issues


def _merge_alias(document: Raw, alias: str, name: str) -> list[Issue]:
    if alias not in document:
        return []
    extra, table = document.pop(alias), document.get(name, {})
    if not isinstance(extra, dict) or not isinstance(table, dict):
        if name in document:
            return [Issue((alias,), f"both {alias} and {name} are given", "one of them", f"remove {alias}")]
        document[name] = extra
        return []
    both = [key for key in extra if key in table and extra[key] != table[key]]
    document[name] = {**table, **extra}
    return [
        Issue((alias, key), f"contradicts {name}.{key}", f"one of the two; {alias} is {name}", "remove one", "conflict")
        for key in both
    ]


def _environments(document: Raw) -> Iterator[tuple[KeyPath, Raw]]:
    """Every environment table, as a fresh copy put in its place, with the path to it."""
    yield from _own_copy(document, ("environment",))
    yield from _own_copy(document, ("verifier", "environment"))
    steps = document.get("steps")
    if isinstance(steps, list):
        document["steps"] = copies = [dict(step) if isinstance(step, dict) else step for step in steps]
        for index, step in enumerate(copies):
            if isinstance(step, dict):
                for path, table in _own_copy(step, ("verifier", "environment")):
                    yield ("steps", index, *path), table


def _own_copy(parent: Raw, path: tuple[str, ...]) -> Iterator[tuple[KeyPath, Raw]]:
    node = parent
    for key in path:
        child = node.get(key)
        if not isinstance(child, dict):
            return
        node[key] = node = dict(cast("Raw", child))
    yield path, node


def _rename(table: Raw, path: KeyPath, old: str, new: str, value: object) -> list[Issue]:
    if old not in table:
        return []
    written = table.pop(old)
    if new in table and table[new] != value:
        return [
            Issue(
                (*path, old),
                f"{show(written)} contradicts {new} = {show(table[new])}",
                f"{new} alone",
                f"remove {old}, which is the old spelling",
                "conflict",
            )
        ]
    table[new] = value
    return [deprecated((*path, old), f"{new} = {_toml(value)}")]


def _sizes(table: Raw, path: KeyPath) -> list[Issue]:
    issues: list[Issue] = []
    for old in ("memory", "storage"):
        if old not in table:
            continue
        size = megabytes(table[old])
        if size is None:
            what = f"{show(table.pop(old))} is not a size"
            issues.append(Issue((*path, old), what, 'a size such as "2G", "512M"', f"use {DEPRECATED[old]} = 2048"))
        else:
            issues += _rename(table, path, old, DEPRECATED[old], size)
    return issues


def megabytes(size: object) -> int | None:
    """`"2G"`, `"512M"` or `"64K"` in megabytes, at least one; None when it is not such a text."""
    match = _SIZE.fullmatch(size.strip().upper()) if isinstance(size, str) else None
    return max(1, int(float(match[1]) * _MEGABYTES[match[2]])) if match else None


def _internet(table: Raw, path: KeyPath) -> list[Issue]:
    if "allow_internet" not in table:
        return []
    allowed = table.pop("allow_internet")
    key = (*path, "allow_internet")
    if not isinstance(allowed, bool):
        return [Issue(key, f"{show(allowed)} is not true or false", "true or false", 'use network_mode = "public"')]
    mode = "public" if allowed else "no-network"
    if "network_mode" in table or "allowed_hosts" in table:
        if table.get("network_mode") == mode:
            return [deprecated(key, f'network_mode = "{mode}"')]
        what = f"{show(allowed)} is ignored, because {dotted(path)} says network_mode or allowed_hosts"
        return [Issue(key, what, "network_mode alone", "remove allow_internet", "ignored-key", "warning")]
    table["network_mode"] = mode
    return [deprecated(key, f'network_mode = "{mode}"')]


def deprecated(path: KeyPath, instead: str) -> Issue:
    return Issue(path, "this spelling is old", "the new one", f"write {instead}", "deprecated-key", "warning")


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else show(value)
