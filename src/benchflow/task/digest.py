"""Content digests: what a task or a dataset is, as one line that two machines agree on.

A digest covers the files that make a task and nothing else: not the folder's name, not modes, owners or times, not
what `.harborignore` and `.gitignore` leave out. It is the digest that Harbor writes into locks, packages and
`dataset.toml`, so digests made by either can be compared. The one-file form adds its own files to the list.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pathspec import GitIgnoreSpec, PathSpec

from benchflow.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

PREFIX = "sha256:"

IGNORE_FILE = ".harborignore"
DEFAULT_IGNORES = ("__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")
"""What is left out of a task that has no `.gitignore`."""

TASK_FILES = ("task.toml", "instruction.md", "README.md", "trajectory.json")
TASK_FOLDERS = ("environment", "tests", "solution", "steps")
NATIVE_FILES = ("task.md",)
NATIVE_FOLDERS = ("verifier", "oracle")
"""What `task.md` adds; counted only where there is no `task.toml`, so that Harbor tasks keep Harbor's digest."""

_SCOPES = ("tests", "solution", *NATIVE_FOLDERS)


def task_digest(path: Path) -> str:
    """`sha256:<hex>` over the content of the task in folder `path`; the same content gives the same digest anywhere.

    Raises TaskError when `path` is no task, a symlink leads out of it, or a file cannot be read.
    """
    return digest_of(file_digests(path))


def file_digests(path: Path) -> dict[str, str]:
    """The sha256 of every file that the digest covers, by name, sorted. Raises as `task_digest` does."""
    return {name: file_sha256(path / name) for name in task_files(path)}


def digest_of(files: Mapping[str, str]) -> str:
    """The digest of sorted names and contents, as `file_digests` gives them."""
    total = hashlib.sha256()
    for name, content in files.items():
        total.update(f"{name}\0{content}\n".encode())
    return PREFIX + total.hexdigest()


def task_files(path: Path) -> list[str]:
    """The files the digest covers, as posix paths relative to the task, sorted. Raises as `task_digest` does."""
    names, folders = _parts(path)
    root = path.resolve()
    excluded = _harborignore(root)
    ignored = _gitignore(root)
    found = [name for name in names if os.path.lexists(root / name)]
    for folder in folders:
        if (root / folder).is_dir():
            _check_link(root, folder)
            found += _walk(root, folder, excluded)
    kept = [name for name in found if not ignored(name)]
    for name in kept:
        _check_link(root, name)
        _check_encoding(root, name)
    return sorted(name for name in kept if (root / name).is_file())


def file_sha256(path: Path) -> str:
    """Hex sha256 of one file, read in pieces. Raises TaskError when it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TaskError(f"{path}: cannot be read: {error.strerror}") from error


def dataset_digest(tasks: Iterable[str], files: Iterable[tuple[str, str]] = ()) -> str:
    """The digest of a dataset from the digests of its tasks and the (name, digest) of its files, in any order."""
    text = ",".join(sorted(digest.removeprefix(PREFIX) for digest in tasks))
    if named := sorted(f"{name}:{digest.removeprefix(PREFIX)}" for name, digest in files):
        text += ";" + ",".join(named)
    return PREFIX + hashlib.sha256(text.encode()).hexdigest()


def _parts(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if (path / "task.toml").is_file():
        return TASK_FILES, TASK_FOLDERS
    if (path / "task.md").is_file():
        return TASK_FILES + NATIVE_FILES, TASK_FOLDERS + NATIVE_FOLDERS
    why = (
        "it has neither task.toml nor task.md"
        if path.is_dir()
        else "it is a file"
        if path.exists()
        else "nothing there"
    )
    raise TaskError(f"{path}: not a task: {why}", hint="name the folder of one task")


def _walk(root: Path, folder: str, excluded: Callable[[str, bool], bool]) -> Iterator[str]:
    """Everything under `folder` that is not excluded and not a folder; links are named, never followed."""
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            entries = list(os.scandir(root / here))
        except OSError as error:
            raise TaskError(f"{root / here}: cannot be read: {error.strerror}") from error
        for entry in entries:
            name = f"{here}/{entry.name}"
            link = entry.is_symlink()
            if excluded(name, os.path.isdir(entry)) or (link and _target_excluded(root, name, excluded)):  # noqa: PTH112
                continue
            if not link and entry.is_dir():
                pending.append(name)
            else:
                yield name


def _target_excluded(root: Path, name: str, excluded: Callable[[str, bool], bool]) -> bool:
    """A link to something that is left out is left out too."""
    target = _resolve(root, name)
    return target.is_relative_to(root) and excluded(target.relative_to(root).as_posix(), target.is_dir())


def _check_link(root: Path, name: str) -> None:
    target = _resolve(root, name)
    if not target.is_relative_to(root):
        raise TaskError(
            f"{root / name}: a symlink leads out of the task, to {target}", hint="copy the file into the task"
        )


def _resolve(root: Path, name: str) -> Path:
    try:
        return Path(os.path.realpath(root / name))
    except OSError as error:
        raise TaskError(f"{root / name}: cannot be resolved: {error.strerror}") from error


def _check_encoding(root: Path, name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise TaskError(f"{root}: the file name {os.fsencode(name)!r} is not UTF-8", hint="rename the file") from error


def _gitignore(root: Path) -> Callable[[str], bool]:
    lines = _lines(root, ".gitignore")
    spec = PathSpec.from_lines("gitignore", DEFAULT_IGNORES if lines is None else lines)
    return spec.match_file


def _harborignore(root: Path) -> Callable[[str, bool], bool]:
    """Whether a path (relative, and whether it is a folder) is left out by the ignore files on the way to it.

    They count from a scope downwards, deeper ones having the last word; what an excluded folder holds is out for good.
    """

    @cache
    def rules(folder: str) -> GitIgnoreSpec:
        return GitIgnoreSpec.from_lines(_lines(root, f"{folder}/{IGNORE_FILE}") or ())

    def excluded(name: str, is_dir: bool) -> bool:
        parts = name.split("/")
        if parts[-1] == IGNORE_FILE:
            return True
        start = _scope_depth(parts)
        for depth in range(start + 1, len(parts) + 1) if start else ():
            slash = "/" if depth < len(parts) or is_dir else ""
            verdict = None
            for above in range(start, depth):
                result = rules("/".join(parts[:above])).check_file("/".join(parts[above:depth]) + slash)
                verdict = verdict if result.include is None else result.include
            if verdict:
                return True
        return False

    return excluded


def _scope_depth(parts: list[str]) -> int:
    """How many leading parts name the folder from which ignore files count; 0 outside of any such folder."""
    if parts[0] in _SCOPES:
        return 1
    return 3 if parts[0] == "steps" and len(parts) > 2 and parts[2] in _SCOPES[:2] else 0


def _lines(root: Path, name: str) -> list[str] | None:
    """The lines of an ignore file that can be used as patterns, or None where there is no such file."""
    path = root / name
    _check_link(root, name)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        GitIgnoreSpec.from_lines(lines)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise TaskError(
            f"{path}: cannot be used: {error}", hint="ignore files are UTF-8, one pattern a line"
        ) from error
    return lines
