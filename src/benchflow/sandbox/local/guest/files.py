"""What copying in and copying out share: reading regular files and nothing else, and keeping their holes.

Both directions run in a child of the first process, so every path is resolved inside the box. The host hands
over one file or one detached tree, which the child cannot leave: `..` at its top leads nowhere.
"""

from __future__ import annotations

import errno
import os
import stat

MAX_DEPTH = 200
"""Folders below folders that are copied; more is an error, because a path of that length is of use to nobody."""

OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_CHUNK = 1 << 30


def copy_data(source: int, target: int, *, at_most: int = 1 << 62) -> None:
    """Copy a regular file's content, keeping its holes, and never more than it had when this began."""
    info = os.fstat(source)
    whole = min(info.st_size, at_most)
    if info.st_blocks * 512 >= info.st_size:
        copy_range(source, target, 0, 0, whole)
        return
    offset = 0
    while offset < whole:
        try:
            start = os.lseek(source, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break
            raise
        if start >= whole:
            break
        offset = min(os.lseek(source, start, os.SEEK_HOLE), whole)
        copy_range(source, target, start, start, offset - start)
    os.ftruncate(target, whole)


def copy_range(source: int, target: int, offset: int, position: int, size: int) -> int:
    """Copy `size` bytes at `offset` of `source` to `position` of `target`; returns how many there were."""
    os.lseek(target, position, os.SEEK_SET)
    left = size
    while left > 0:
        count = os.sendfile(target, source, offset, min(left, _CHUNK))
        if count == 0:
            break
        offset += count
        left -= count
    return size - left


def check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise OSError(errno.ENAMETOOLONG, f"folders more than {MAX_DEPTH} deep")


def open_regular(path: str, *, directory: int | None = None) -> int:
    """Open a regular file that is no link, never blocking on anything else that may be there. Raises OSError."""
    handle = os.open(path, OPEN_FILE, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return handle


def open_own(path: str) -> int | None:
    """Open a regular file that lies on the file system of the root itself, and not on any other, such as /proc.

    None for everything else, and for what cannot be opened. Raises FileNotFoundError when nothing is there.
    """
    try:
        folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return open_regular(os.path.basename(path), directory=folder) if is_own(folder) else None
        finally:
            os.close(folder)
    except FileNotFoundError:
        raise
    except OSError:
        return None


def is_own(folder: int) -> bool:
    """Whether a folder lies on the file system of the root: its device is the root's, whichever layer it comes from.

    A file's need not be.
    """
    return os.fstat(folder).st_dev == os.stat("/").st_dev


def read_bounded(path: str, limit: int) -> bytes:
    """The content of a regular file that is no link. Raises OSError, EFBIG when it is longer than `limit`."""
    handle = open_regular(path)
    try:
        parts: list[bytes] = []
        size = 0
        while part := os.read(handle, min(limit + 1 - size, 1 << 20)):
            parts.append(part)
            size += len(part)
            if size > limit:
                raise OSError(errno.EFBIG, f"longer than {limit} bytes", path)
        return b"".join(parts)
    finally:
        os.close(handle)
