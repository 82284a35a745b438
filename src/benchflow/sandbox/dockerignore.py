"""What a Docker build can see: the files of a context folder, without those its ignore file excludes.

The model is Docker's. Patterns are anchored at the context's root and the last one that matches a path, or a
folder above it, decides; `!` brings back. `<Dockerfile>.dockerignore` beside the Dockerfile replaces the
`.dockerignore` at the root. Links are listed as links and never followed; devices, sockets and pipes are left out.
The listing is sorted by name, so that equal contexts give equal listings and equal digests.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchflow.errors import SandboxBuildError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

FileKind = Literal["file", "folder", "link"]

SETTLED = 2.0
"""Seconds a file must have been unchanged before its digest is remembered: a later write is then sure to show."""

REMEMBERED = 100_000
"""File digests kept in memory at most."""


_SPECIAL = re.compile(r"[*?\[\\]")


@dataclass(frozen=True, slots=True)
class ContextFile:
    """One entry of a build context. `name` is relative to its root, with `/`; `target` is where a link points."""

    name: str
    path: Path
    kind: FileKind
    mode: int
    target: str = ""


@dataclass(frozen=True, slots=True)
class _Pattern:
    text: str
    regex: re.Pattern[str]
    negated: bool

    @property
    def literal_head(self) -> str:
        """The part before the first special character: nothing outside it can match."""
        return _SPECIAL.split(self.text, maxsplit=1)[0]


class Ignore:
    """The rules of one ignore file."""

    def __init__(self, patterns: Iterable[_Pattern] = ()) -> None:
        self._patterns = tuple(patterns)

    def ignored(self, name: str) -> bool:
        """Whether the path `name` is kept out of the context."""
        paths = [name, *_parents(name)]
        verdict = False
        for pattern in self._patterns:
            if pattern.negated == verdict and any(pattern.regex.fullmatch(path) for path in paths):
                verdict = not pattern.negated
        return verdict

    def may_keep_below(self, name: str) -> bool:
        """Whether something inside the ignored folder `name` could be brought back by a `!` pattern."""
        folder = name + "/"
        return any(
            p.negated and (p.literal_head.startswith(folder) or folder.startswith(p.literal_head))
            for p in self._patterns
        )


def parse_ignore(text: str, where: str = ".dockerignore") -> Ignore:
    """The rules written in `text`. Raises SandboxBuildError, naming `where` and the line, for a malformed pattern."""
    patterns = []
    for number, raw in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if raw.startswith("#") or not (line := raw.strip()):
            continue
        negated = line.startswith("!")
        body = line[1:].strip() if negated else line
        if not body:
            raise _error(f"{where}:{number}: '!' needs a pattern after it")
        body = posixpath.normpath(body).lstrip("/")
        if not body:
            continue
        try:
            patterns.append(_Pattern(body, re.compile(glob_regex(body), re.DOTALL), negated))
        except ValueError as error:
            raise _error(f"{where}:{number}: the pattern {line!r} is malformed: {error}") from None
    return Ignore(patterns)


def read_ignore(context: Path, dockerfile: str = "Dockerfile") -> Ignore:
    """The rules in force for a context: of the Dockerfile's own ignore file if there is one, else of the root's."""
    for name in (f"{dockerfile}.dockerignore", ".dockerignore"):
        if os.path.lexists(context / name):
            return parse_ignore(read_inside(context, name).decode("utf-8", "replace"), str(context / name))
    return Ignore()


def read_inside(context: Path, name: str) -> bytes:
    """The content of a file of the context. Raises SandboxBuildError if it is missing or a link leads outside."""
    path = context / name
    try:
        if not path.resolve(strict=True).is_relative_to(context.resolve(strict=True)):
            raise _error(f"{path} leads out of the build context")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise _error(f"{path} cannot be read: {_reason(error)}") from None


def context_files(context: Path, dockerfile: str = "Dockerfile") -> list[ContextFile]:
    """Everything a build of `context` can copy, sorted by name, folders before what is in them.

    The Dockerfile and the ignore file are listed unless ignored; a builder that needs the Dockerfile sent adds it.
    Raises SandboxBuildError when the folder or something in it cannot be read.
    """
    if not context.is_dir():
        raise _error(f"the build context {context} is not a folder")
    ignore = read_ignore(context, dockerfile)
    try:
        return sorted(_walk(context, "", ignore), key=lambda file: file.name.split("/"))
    except OSError as error:
        raise _error(f"{error.filename} cannot be read: {_reason(error)}") from None


def context_digest(context: Path, dockerfile: str = "Dockerfile") -> str:
    """A digest of what a build of `context` depends on: the Dockerfile, and `files_digest` of what it can copy."""
    own = hashlib.sha256(read_inside(context, dockerfile)).hexdigest()
    return hashlib.sha256(f"{own} {files_digest(context_files(context, dockerfile))}".encode()).hexdigest()


def files_digest(files: Iterable[ContextFile]) -> str:
    """A digest of names, kinds, modes, contents and link targets, in the order given.

    Raises SandboxBuildError for a file that cannot be read.
    """
    total = hashlib.sha256()
    for file in files:
        content = _content_digest(file.path) if file.kind == "file" else file.target
        for field in (file.name, file.kind, f"{file.mode:o}", content):
            data = os.fsencode(field)
            total.update(b"%d:%s" % (len(data), data))
    return total.hexdigest()


# -- walking -------------------------------------------------------------------------------------------------


def _walk(context: Path, folder: str, ignore: Ignore) -> Iterator[ContextFile]:
    """The entries below `folder`; a folder that is ignored itself appears if something in it does not."""
    with os.scandir(context / folder) as scan:
        entries = list(scan)
    for entry in entries:
        name = f"{folder}/{entry.name}" if folder else entry.name
        ignored = ignore.ignored(name)
        if entry.is_dir(follow_symlinks=False):
            below = list(_walk(context, name, ignore)) if not ignored or ignore.may_keep_below(name) else []
            if below or not ignored:
                yield ContextFile(name, context / name, "folder", _mode(entry))
            yield from below
        elif ignored:
            continue
        elif entry.is_symlink():
            yield ContextFile(name, context / name, "link", 0o777, _link_target(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield ContextFile(name, context / name, "file", _mode(entry))


def _mode(entry: os.DirEntry[str]) -> int:
    return stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)


def _link_target(path: str) -> str:
    return os.readlink(path)  # noqa: PTH115  Path.readlink would normalise the text of the link


def _parents(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


# -- patterns ------------------------------------------------------------------------------------------------


def glob_regex(pattern: str) -> str:
    """A regular expression equal to Docker's reading of `pattern`. Raises ValueError for a malformed one."""
    out: list[str] = []
    i = 0
    while i < len(pattern):
        char = pattern[i]
        i += 1
        if char == "*":
            if pattern[i : i + 1] != "*":
                out.append("[^/]*")
                continue
            i += 2 if pattern[i + 1 : i + 2] == "/" else 1
            # `**.pyc` means every name that ends so, as long as nothing after the stars is special.
            ending = i == 2 and _SPECIAL.search(pattern, i) is None
            out.append(".*" if ending or i == len(pattern) else "(?:.*/)?")
        elif char == "?":
            out.append("[^/]")
        elif char == "[":
            text, i = _translate_class(pattern, i)
            out.append(text)
        elif char == "\\":
            if i == len(pattern):
                raise ValueError("it ends in a backslash")
            out.append(re.escape(pattern[i]))
            i += 1
        else:
            out.append(re.escape(char))
    return "".join(out)


def _translate_class(pattern: str, i: int) -> tuple[str, int]:
    """The class whose `[` stands before `i`, and the position after its `]`."""
    out = ["["]
    if pattern[i : i + 1] == "^":
        out.append("^")
        i += 1
    empty = True
    while empty or pattern[i : i + 1] != "]":
        low, i = _class_char(pattern, i)
        high = low
        if pattern[i : i + 1] == "-":
            high, i = _class_char(pattern, i + 1)
        if high < low:
            raise ValueError(f"the range {low}-{high} is empty")
        out.append(f"{re.escape(low)}-{re.escape(high)}")
        empty = False
    return "".join(out) + "]", i + 1


def _class_char(pattern: str, i: int) -> tuple[str, int]:
    char = pattern[i : i + 1]
    if char == "\\":
        i += 1
        char = pattern[i : i + 1]
    elif char in {"-", "]"}:
        raise ValueError(f"{char!r} inside [...] must be escaped")
    if not char:
        raise ValueError("'[' is not closed")
    return char, i + 1


# -- contents ------------------------------------------------------------------------------------------------

type _Identity = tuple[int, int, int, int, int]

_digests: dict[_Identity, str] = {}


def _content_digest(path: Path) -> str:
    """The digest of a file's content, remembered for files that have been left alone for a while."""
    try:
        with path.open("rb") as file:
            info = os.fstat(file.fileno())
            identity = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
            if known := _digests.get(identity):
                return known
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _error(f"{path} cannot be read: {_reason(error)}") from None
    if time.time() - max(info.st_mtime, info.st_ctime) > SETTLED:
        if len(_digests) >= REMEMBERED:
            _digests.clear()
        _digests[identity] = digest
    return digest


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


def _error(message: str) -> SandboxBuildError:
    return SandboxBuildError(message, backend="image")
