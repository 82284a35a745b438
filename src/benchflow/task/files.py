"""Reading a task's files without trusting them.

Reads are bounded, only regular files are opened (a pipe would hang us), and nothing outside the task's folder is
ever followed. The trees that are uploaded are listed after their `.harborignore` files, which apply downwards and
are never uploaded themselves.
"""

from __future__ import annotations

import os
import re
import stat
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from benchflow.task.problem import Problem

if TYPE_CHECKING:
    from pathlib import Path

    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".harborignore"

IGNORE_LIMIT = 64 * 1024
"""Bytes of an ignore file."""

ENTRIES_LIMIT = 100_000
"""Files and folders of one uploaded tree."""


class Unreadable(Exception):
    """A file that cannot be used; carries the problem to report."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def fault(file: Path, code: str, what: str, expected: str, fix: str, *, line: int | None = None) -> Problem:
    return Problem(file, line, "error", what, expected, fix, code)


def read_text(file: Path, root: Path, limit: int) -> str:
    """The text of a regular file, whose folder is known to be below `root` (a resolved path), as it must be itself.

    Raises Unreadable with what is wrong.
    """
    try:
        status = file.lstat()
        if stat.S_ISLNK(status.st_mode):
            if not file.resolve(strict=True).is_relative_to(root):
                raise Unreadable(escape(file))
            status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable(
                fault(file, "not-a-file", "is not a regular file", "a file", "replace it with a text file")
            )
        if status.st_size > limit:
            what = f"is {status.st_size:,} bytes long"
            raise Unreadable(fault(file, "too-large", what, f"at most {limit:,} bytes", "shorten it"))
        with file.open("rb") as stream:
            data = stream.read(limit + 1)
    except (OSError, RuntimeError) as error:
        raise Unreadable(unreadable(file, error)) from error
    if len(data) > limit:
        raise Unreadable(fault(file, "too-large", "grows while it is read", f"at most {limit:,} bytes", "shorten it"))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{data[error.start]:02x} at offset {error.start} is not UTF-8"
        raise Unreadable(fault(file, "not-utf8", what, "UTF-8 text", "save the file as UTF-8", line=line)) from error


def leaves(path: Path, root: Path) -> bool:
    """Whether `path` is a link out of `root` (a resolved path), given that its folder is inside. Raises OSError."""
    return path.is_symlink() and not path.resolve().is_relative_to(root)


def escape(file: Path) -> Problem:
    return fault(file, "escapes-task", "leads out of the task's folder", "files inside the task", "copy the file in")


def unreadable(file: Path, error: Exception) -> Problem:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    missing = isinstance(error, FileNotFoundError)
    return fault(
        file,
        "missing-file" if missing else "unreadable",
        "does not exist" if missing else f"cannot be read: {reason}",
        "a readable file",
        "create it" if missing else "check what it is and its permissions",
    )


@dataclass(slots=True)
class Tree:
    """The files of a folder that count, as (file, path relative to the folder), and what is wrong with it."""

    files: list[tuple[Path, str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Folder:
    path: Path
    relative: str
    """Path below the top of the tree, ending in a slash; empty for the top itself."""
    depth: int = 0
    rules: tuple[tuple[str, GitIgnoreSpec], ...] = ()
    """Ignore rules that apply here, each with the folder they were written in."""


def read_tree(folder: Path, root: Path, *, ignores: bool = True) -> Tree:
    """Every file below `folder` that is not ignored; a folder that does not exist is empty. Never raises.

    Without `ignores` an ignore file is a file like any other.
    """
    tree = Tree()
    pending = [_Folder(folder, "")]
    seen = 0
    try:
        if leaves(folder, root):
            tree.problems.append(escape(folder))
            return tree
    except (OSError, RuntimeError) as error:
        tree.problems.append(unreadable(folder, error))
        return tree
    while pending:
        current = pending.pop()
        try:
            with os.scandir(current.path) as entries:
                ordered = sorted(entries, key=lambda entry: entry.name)
            if ignores and any(entry.name == IGNORE_FILE for entry in ordered):
                current = _with_rules(current, root)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, Unreadable) as error:
            problem = error.problem if isinstance(error, Unreadable) else unreadable(current.path, error)
            tree.problems.append(problem)
            continue
        seen += len(ordered)
        if seen > ENTRIES_LIMIT:
            what = f"has more than {ENTRIES_LIMIT:,} entries"
            tree.problems.append(fault(folder, "too-large", what, "fewer files", "pack them, or remove some"))
            break
        pending.extend(inner for entry in ordered if (inner := _visit(entry, current, root, tree)))
    tree.files.sort(key=lambda item: item[1])
    return tree


def _with_rules(folder: _Folder, root: Path) -> _Folder:
    from pathspec import GitIgnoreSpec

    file = folder.path / IGNORE_FILE
    text = read_text(file, root, IGNORE_LIMIT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of `re`, about what patterns such as [[] become
            spec = GitIgnoreSpec.from_lines(text.splitlines())
    except (ValueError, re.error) as error:
        problem = fault(file, "bad-pattern", f"has a bad pattern: {error}", "gitignore patterns", "correct it")
        raise Unreadable(problem) from error
    return replace(folder, rules=(*folder.rules, (folder.relative, spec)))


def _visit(entry: os.DirEntry[str], folder: _Folder, root: Path, tree: Tree) -> _Folder | None:
    """Record one entry; a folder to go into is returned."""
    relative = folder.relative + entry.name
    path = folder.path / entry.name
    try:
        is_folder, is_file, is_link = entry.is_dir(), entry.is_file(), entry.is_symlink()
        if _ignored(relative, is_folder, folder):
            return None
        problem = _bad_link(path, folder.depth + 1, root) if is_link else None
    except (OSError, RuntimeError) as error:
        problem = unreadable(path, error)
    if problem is None and not is_folder and not is_file:
        what = "is a link to nothing; it is left out" if is_link else "is not a file; it is left out"
        problem = Problem(path, None, "warning", what, "files and folders", "remove it", "not-a-file")
    if problem is not None:
        tree.problems.append(problem)
    elif is_folder:
        return _Folder(path, f"{relative}/", folder.depth + 1, folder.rules)
    else:
        tree.files.append((path, relative))
    return None


def _bad_link(path: Path, depth: int, root: Path) -> Problem | None:
    target = path.resolve()
    if not target.is_relative_to(root):
        return escape(path)
    if target in [above.resolve() for above in list(path.parents)[:depth]]:
        return fault(path, "link-cycle", "is a link to a folder that it is in", "no cycles", "remove it")
    return None


def _ignored(relative: str, is_folder: bool, folder: _Folder) -> bool:
    if folder.rules and relative.rpartition("/")[2] == IGNORE_FILE:
        return True
    ignored = False
    for base, spec in folder.rules:
        match = spec.check_file(relative.removeprefix(base) + ("/" if is_folder else ""))
        if match.include is not None:
            ignored = match.include
    return ignored
