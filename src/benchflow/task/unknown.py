"""Keys that no table knows. They never keep a task from loading; each is a warning that names the nearest key."""

from __future__ import annotations

import difflib
from functools import cache
from typing import TYPE_CHECKING, get_args

from benchflow.task.legacy import DEPRECATED, TABLE_ALIASES
from benchflow.task.problem import Issue, KeyPath, dotted, show
from benchflow.task.values import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def unknown_keys(model: type[Table], raw: Mapping[str, object], path: KeyPath = ()) -> Iterator[Issue]:
    """A warning for each key of `raw`, at any depth, that `model` does not have."""
    tables = _tables(model)
    for key, value in raw.items():
        if key not in model.model_fields:
            yield _unknown(model, key, path)
        elif (table := tables.get(key)) is not None:
            for where, item in _items(value, (*path, key)):
                yield from unknown_keys(table, item, where)


def number_texts(config: Table, raw: Mapping[str, object], path: KeyPath = ()) -> Iterator[Issue]:
    """A warning for each number that is written as text."""
    for key, value in raw.items():
        if key not in type(config).model_fields:
            continue
        parsed = getattr(config, key)
        if isinstance(value, str) and isinstance(parsed, int | float):
            fix = f"write {key} = {parsed}"
            yield Issue((*path, key), f"{show(value)} is text", "a number", fix, "number-as-text", "warning")
        elif isinstance(value, dict) and isinstance(parsed, Table):
            yield from number_texts(parsed, value, (*path, key))
        elif isinstance(value, list) and isinstance(parsed, tuple):
            for index, (item, table) in enumerate(zip(value, parsed, strict=True)):
                if isinstance(item, dict) and isinstance(table, Table):
                    yield from number_texts(table, item, (*path, key, index))


def _items(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, Mapping[str, object]]]:
    if isinstance(value, dict):
        yield path, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict):
                yield (*path, index), item


@cache
def _tables(model: type[Table]) -> dict[str, type[Table]]:
    """The keys of a model that hold a table or a list of tables, with its model."""
    found = {key: _table_in(field.annotation) for key, field in model.model_fields.items()}
    return {key: table for key, table in found.items() if table is not None}


def _table_in(annotation: object) -> type[Table] | None:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation
    return next((table for part in get_args(annotation) if (table := _table_in(part)) is not None), None)


def _unknown(model: type[Table], key: str, path: KeyPath) -> Issue:
    names = [
        *model.model_fields,
        *(TABLE_ALIASES if not path else DEPRECATED if "memory_mb" in model.model_fields else ()),
    ]
    near = difflib.get_close_matches(key, names, n=1)
    where = f"[{dotted(path)}]" if path else "the top level"
    return Issue(
        (*path, key),
        f"unknown key, ignored{f'; the nearest is {near[0]!r}' if near else ''}",
        f"a key of {where}",
        f"rename it to {near[0]!r}" if near else "remove it, or move free data to [metadata]",
        "unknown-key",
        "warning",
    )
