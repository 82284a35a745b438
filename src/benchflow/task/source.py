"""Where tasks come from: one task, a folder of them, or a folder of a git repository (`fetch`).

Finding tasks looks at names only and parses nothing, so that ten thousand are listed in a moment; only a filter that is
no folder's name makes it read what tasks call themselves. A folder that looks like a task and is broken is found like
any other: whoever loads it reports what is wrong, together with the rest.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.task.fetch import FETCH_TIMEOUT, FetchedSource, cache_folder, fetch, fetch_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["FETCH_TIMEOUT", "FetchedSource", "cache_folder", "fetch", "fetch_many", "find_tasks", "select"]

_MARKS = ("task.toml", "task.md")
# Without a mark of its own a folder that has this is a task that lost its task.toml, and somebody should be told.
_TRACES = ("instruction.md",)
_SHOWN = 5


def find_tasks(path: Path, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> list[Path]:
    """The task `path`, or the tasks that are its immediate children, sorted by name and filtered by `select`.

    A filter that is the name of a folder means that one; any other is held against the folders' names and those that
    the tasks give themselves. Children that are no tasks, and hidden ones, are passed over. Raises ConfigError when
    there is no such folder, no task in it, or a filter matches nothing.
    """
    found = {task.name: task for task in _find(path)}
    plain = all(text in found for text in (*include, *exclude))
    own = {} if plain else {name: _own_name(folder) for name, folder in found.items()}
    return [found[name] for name in select(found, include, exclude, own)]


def select(
    names: Iterable[str],
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    second: Mapping[str, str] | None = None,
) -> list[str]:
    """The names that match any of `include` (all when empty) and none of `exclude`, in their order.

    A filter is a name or a glob (`*`, `?`, `[...]`), case counts; for `org/name` the part behind the slash will do. One
    that is no name as it stands may also match the `second` name of a name. Raises ConfigError when a filter matches
    no name at all, or nothing is left.
    """
    known = list(names)
    wanted = _matched(known, include, "include", second or {}) if include else set(known)
    wanted -= _matched(known, exclude, "exclude", second or {})
    kept = [name for name in known if name in wanted]
    if known and not kept:
        raise ConfigError(f"include and exclude leave none of {len(known)} tasks", hint="drop one of the filters")
    return kept


def _find(path: Path) -> list[Path]:
    try:
        if any(os.path.lexists(path / mark) for mark in _MARKS):
            return [path.resolve()]
        with os.scandir(path) as entries:
            children = sorted(entry.path for entry in entries if entry.name[0] != "." and _is_folder(entry))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such folder", hint=_near_path(path)) from error
    except NotADirectoryError as error:
        parent = f"name its folder: {path.parent}" if path.name in (*_MARKS, *_TRACES) else "name a folder"
        raise ConfigError(f"{path}: is a file, not a task or a folder of tasks", hint=parent) from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{str(path)!r}: cannot be read: {error}") from error
    tasks = [Path(child) for child in children if _looks_like_task(child)]
    if tasks:
        return tasks
    if any(os.path.lexists(path / trace) for trace in _TRACES):
        return [path.resolve()]
    raise ConfigError(f"{path}: no task in this folder", hint="a task is a folder with a task.toml or a task.md in it")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    # A link is asked about apart, because asking the entry raises where a link leads in a circle.
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()  # noqa: PTH112


def _looks_like_task(folder: str) -> bool:
    return any(os.path.lexists(f"{folder}/{name}") for name in (*_MARKS, *_TRACES))


def _near_path(path: Path) -> str | None:
    try:
        beside = [child.name for child in path.parent.iterdir()]
    except OSError:
        return None
    close = difflib.get_close_matches(path.name, beside, n=_SHOWN)
    return f"did you mean {' or '.join(str(path.parent / name) for name in close)}?" if close else None


def _own_name(folder: Path) -> str:
    """What a task calls itself; the folder's name where it does not, or cannot be read."""
    from benchflow.task.document import find_document, read_document
    from benchflow.task.files import Unreadable

    try:
        file = find_document(folder)
        about = read_document(file, folder.resolve()).raw.get("task") if file else None
    except (OSError, RuntimeError, Unreadable):
        return folder.name
    name = about.get("name") if isinstance(about, dict) else None
    return name if isinstance(name, str) else folder.name


def _matched(names: Sequence[str], filters: Sequence[str], what: str, second: Mapping[str, str]) -> set[str]:
    matched: set[str] = set()
    for text in filters:
        matches = _matcher(text)
        other = {} if text in names else second
        found = {name for name in names if matches(name) or (name in other and matches(other[name]))}
        if not found:
            close = difflib.get_close_matches(
                text, list(dict.fromkeys((*names, *other.values()))), n=_SHOWN, cutoff=0.4
            )
            some = close or sorted(names)[:_SHOWN]
            start = "did you mean" if close else "there are" if len(names) <= _SHOWN else f"{len(names)} tasks, such as"
            raise ConfigError(f"{what} {text!r} matches no task", hint=f"{start} {', '.join(some)}")
        matched |= found
    return matched


def _matcher(text: str) -> Callable[[str], bool]:
    """Whether a name is `text`, or matches it as a glob; a name with brackets in it is still matched by itself."""
    glob = re.compile(fnmatch.translate(text))

    def matches(name: str) -> bool:
        last = name.rpartition("/")[2]
        return text in (name, last) or bool(glob.match(name) or glob.match(last))

    return matches
