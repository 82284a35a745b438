"""Removing what boxes wrote: a few files at once, more of them by a program that is faster at it."""

from __future__ import annotations

import os

from . import programs
from .files import OPEN_FOLDER

QUICK_ENTRIES = 300
"""Up to so many entries are removed here: starting a program costs about as much."""

QUICK_BYTES = 64 << 20
"""Up to so many bytes are removed here: forgetting what lies in memory of a file takes the kernel a while."""


class _TooMuch(Exception):
    """More than `QUICK_ENTRIES` or `QUICK_BYTES`."""


def remove(path: str) -> None:
    """Remove a tree; an absent one is fine. Raises OSError."""
    if not remove_quickly(path):
        programs.run(["rm", "-rf", "--", path])


def remove_quickly(path: str) -> bool:
    """Remove a tree if that takes no noticeable time; whether nothing is left of it."""
    try:
        handle = os.open(path, OPEN_FOLDER)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        _Remover().empty(handle)
        os.rmdir(path)
    except (_TooMuch, OSError):
        return False
    finally:
        os.close(handle)
    return True


class _Remover:
    def __init__(self) -> None:
        self._entries = QUICK_ENTRIES
        self._bytes = QUICK_BYTES

    def empty(self, folder: int) -> None:
        """Remove what is in a folder. Raises OSError, and _TooMuch once it is."""
        with os.scandir(folder) as entries:
            for entry in entries:
                self._entries -= 1
                self._bytes -= entry.stat(follow_symlinks=False).st_blocks * 512
                if self._entries < 0 or self._bytes < 0:
                    raise _TooMuch
                if entry.is_dir(follow_symlinks=False):
                    inner = os.open(entry.name, OPEN_FOLDER, dir_fd=folder)
                    try:
                        self.empty(inner)
                    finally:
                        os.close(inner)
                    os.rmdir(entry.name, dir_fd=folder)
                else:
                    os.unlink(entry.name, dir_fd=folder)
