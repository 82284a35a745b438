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


def copy_data(source: int, target: int) -> None:
    """Copy a regular file's content, keeping its holes, and never more than it had when this began."""
    info = os.fstat(source)
    if info.st_blocks * 512 >= info.st_size:
        copy_range(source, target, 0, 0, info.st_size)
        return
    offset = 0
    while offset < info.st_size:
        try:
            start = os.lseek(source, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break
            raise
        offset = min(os.lseek(source, start, os.SEEK_HOLE), info.st_size)
        copy_range(source, target, start, start, offset - start)
    os.ftruncate(target, info.st_size)


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
