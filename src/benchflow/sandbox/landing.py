"""Where files from a sandbox land on the host: one folder or one file, and nothing outside it.

Whoever fills a sandbox chooses every name, link and mode in it, so what comes out is hostile until proven otherwise.
The model: every step into a folder is one name opened relative to the folder above without following links, so no
name can lead elsewhere; what is in the way is replaced, never written through. Links are made last, and those that
do not end inside the target are left out. Owners, setuid and setgid bits are dropped, and the host user keeps the
right to read files and to enter folders.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

MAX_DEPTH = 200
"""Folders below the target that something may lie in; each open level takes a descriptor."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Landing:
    """Use as a context manager; a name is given as its parts below the target, no parts being the target itself.

    Raises OSError when the host refuses, and ValueError for parts that are no plain names or lie too deep.
    """

    def __init__(self, target: Path) -> None:
        self._target = os.path.abspath(target)  # noqa: PTH100  a name need not be valid text, and links stay as given
        self._open: list[tuple[str, int]] = []
        self._links: list[tuple[tuple[str, ...], str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._make_links()
        finally:
            self._close_below(0)

    def folder(self, parts: Sequence[str], mode: int) -> None:
        """Make a folder, or give an existing one this mode; the target itself keeps the mode that the host gave it."""
        descriptor = self._enter(parts)
        if parts:
            os.fchmod(descriptor, mode & 0o1777 | 0o700)

    def file(self, parts: Sequence[str], mode: int) -> int:
        """A descriptor, owned by the caller, of a new and empty file that replaces what had its name."""
        if parts:
            name, parent = parts[-1], self._enter(parts[:-1])
            _check(name)
        else:
            name, parent = self._target, None
            os.makedirs(os.path.dirname(name), exist_ok=True)  # noqa: PTH103, PTH120
        _remove(name, parent)
        descriptor = os.open(name, _NEW_FILE, 0o600, dir_fd=parent)
        os.fchmod(descriptor, mode & 0o1777 | 0o400)
        return descriptor

    def hard_link(self, parts: Sequence[str], original: Sequence[str]) -> None:
        """Give a file that has landed a second name; left out if the first is not there or no file."""
        _check(parts[-1])
        _check(original[-1])
        source = os.dup(self._enter(original[:-1]))
        try:
            if not _is_file(original[-1], source):
                return
            parent = self._enter(parts[:-1])
            _remove(parts[-1], parent)
            os.link(original[-1], parts[-1], src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(source)

    def link(self, parts: Sequence[str], text: str) -> None:
        """Make a symbolic link at the end, if it then leads to somewhere inside the target."""
        if parts and text and not text.startswith("/"):
            self._links.append((tuple(parts), text))

    def _make_links(self) -> None:
        """What is in the way of a link is a folder that has landed, so the link is left out."""
        try:
            for parts, text in self._links:
                with suppress(OSError):
                    parent = self._enter(parts[:-1])
                    _check(parts[-1])
                    _remove(parts[-1], parent)
                    os.symlink(text, parts[-1], dir_fd=parent)
        finally:
            top = os.path.realpath(self._target)
            for parts, _ in self._links:
                path = os.path.join(top, *parts)  # noqa: PTH118  as above
                end = os.path.realpath(path)
                if end != top and not end.startswith(top + os.sep) and os.path.islink(path):  # noqa: PTH114  as above
                    os.unlink(parts[-1], dir_fd=self._enter(parts[:-1]))

    def _enter(self, parts: Sequence[str]) -> int:
        """The descriptor of a folder, made if it is missing; valid until the next call."""
        if len(parts) > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} folders deep")
        if not self._open:
            os.makedirs(self._target, exist_ok=True)  # noqa: PTH103  as above
            self._open.append(("", os.open(self._target, _FOLDER & ~os.O_NOFOLLOW)))
        same = 0
        while same < len(parts) and same + 1 < len(self._open) and self._open[same + 1][0] == parts[same]:
            same += 1
        self._close_below(same + 1)
        for name in parts[same:]:
            _check(name)
            self._open.append((name, _open_folder(name, self._open[-1][1])))
        return self._open[-1][1]

    def _close_below(self, level: int) -> None:
        while len(self._open) > level:
            os.close(self._open.pop()[1])


def _check(name: str) -> None:
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is no name of a file")


def _open_folder(name: str, parent: int) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        pass
    except OSError:
        # A file or a link of that name is in the way.
        os.unlink(name, dir_fd=parent)
    os.mkdir(name, 0o700, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def _remove(name: str, parent: int | None) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)


def _is_file(name: str, parent: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False
