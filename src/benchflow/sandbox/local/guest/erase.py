"""Removing trees inside a box without starting any of its programs."""

from __future__ import annotations

import os
from contextlib import suppress

from .files import OPEN_FOLDER, check_depth


def erase(path: str) -> None:
    """Remove a file, link or tree; an absent one is fine. Links are removed, never followed. Raises OSError."""
    head, _, name = path.rstrip("/").rpartition("/")
    try:
        parent = os.open(head or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        _erase(parent, name, 0)
    finally:
        os.close(parent)


def _erase(parent: int, name: str, depth: int) -> None:
    check_depth(depth)
    try:
        handle = os.open(name, OPEN_FOLDER, dir_fd=parent)
    except FileNotFoundError:
        return
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
        return
    try:
        for child in os.listdir(handle):
            _erase(handle, child, depth + 1)
    finally:
        os.close(handle)
    os.rmdir(name, dir_fd=parent)
