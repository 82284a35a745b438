"""Copying into a box: through whatever links the box has on the way, which only ever lead inside it."""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from .files import CREATE_FILE, OPEN_FOLDER, check_depth, copy_data, copy_range, open_regular

NEW_FOLDER_MODE = 0o755

BUFFERED = 1 << 20
"""Contents of up to so many bytes are read at once: a small write costs much less than a copy from file to file."""


class Owner(NamedTuple):
    uid: int
    gid: int


def put_tree(source: int, target: str, owner: Owner) -> None:
    """Copy what is in the folder `source` into the folder `target` of this root.

    Modes, times and links are kept. Folders that exist stay as they are; any other thing in the way is replaced,
    or when it is a link to a file, what it leads to is.
    """
    _put_entries(source, make_folders(target, owner), owner, 0)


def put_file(source: int, target: str, mode: int, owner: Owner) -> None:
    """Copy a regular file to `target`; when that is a link, to where it leads."""
    make_folders(os.path.dirname(target) or "/", owner)
    handle = _create(target, mode)
    try:
        copy_data(source, handle)
        _finish(handle, mode, owner)
    finally:
        os.close(handle)


def put_data(source: int, target: str, files: list[tuple[str, int, int]], owner: Owner) -> None:
    """Write files whose contents lie in a row in `source`: path below `target`, mode, size."""
    made = {target: make_folders(target, owner)}
    whole = sum(size for _, _, size in files)
    contents = os.pread(source, whole, 0) if whole <= BUFFERED else b""
    offset = 0
    for path, mode, size in files:
        place = os.path.join(target, path)
        folder = os.path.dirname(place)
        if folder not in made:
            made[folder] = make_folders(folder, owner)
        handle = _create(f"{made[folder]}/{os.path.basename(place)}", mode)
        try:
            if contents:
                written = os.write(handle, contents[offset : offset + size])
            else:
                written = copy_range(source, handle, offset, 0, size)
            if written != size:
                raise OSError(errno.EIO, "content ended early", path)
            _finish(handle, mode, owner)
        finally:
            os.close(handle)
        offset += size


def make_folders(path: str, owner: Owner) -> str:
    """Make a folder and its missing parents, through any links on the way; returns its path without links."""
    path = top = os.path.realpath(path)
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        os.mkdir(folder, NEW_FOLDER_MODE)
        _finish(folder, NEW_FOLDER_MODE, owner)
    return top


def _put_entries(source: int, target: str, owner: Owner, depth: int) -> None:
    check_depth(depth)
    with os.scandir(source) as entries:
        for entry in entries:
            place = f"{target}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                _put_folder(source, entry.name, place, owner, depth)
            elif entry.is_symlink():
                _put_link(os.readlink(entry.name, dir_fd=source), place, owner)
            elif entry.is_file(follow_symlinks=False):
                _put_regular(source, entry.name, place, owner)


def _put_folder(source: int, name: str, place: str, owner: Owner, depth: int) -> None:
    made = not os.path.isdir(place)
    if made:
        _remove(place)
        os.mkdir(place, 0o700)
    handle = os.open(name, OPEN_FOLDER, dir_fd=source)
    try:
        _put_entries(handle, place if made else os.path.realpath(place), owner, depth + 1)
        if made:
            info = os.fstat(handle)
            os.chown(place, owner.uid, owner.gid)
            os.chmod(place, stat.S_IMODE(info.st_mode))
            os.utime(place, ns=(info.st_atime_ns, info.st_mtime_ns))
    finally:
        os.close(handle)


def _put_link(text: str, place: str, owner: Owner) -> None:
    _remove(place)
    os.symlink(text, place)
    os.lchown(place, owner.uid, owner.gid)


def _put_regular(source: int, name: str, place: str, owner: Owner) -> None:
    origin = open_regular(name, directory=source)
    try:
        info = os.fstat(origin)
        handle = _create(place, info.st_mode)
        try:
            copy_data(origin, handle)
            _finish(handle, info.st_mode, owner)
            os.utime(handle, ns=(info.st_atime_ns, info.st_mtime_ns))
        finally:
            os.close(handle)
    finally:
        os.close(origin)


def _create(path: str, mode: int) -> int:
    """A new file at `path`, or where the link at `path` leads, in place of what is there.

    Never written in place: a program that runs from the old file keeps it, and a pipe is not waited for.
    """
    try:
        return os.open(path, CREATE_FILE, mode & 0o777)
    except FileExistsError:
        if os.path.islink(path):
            path = os.path.realpath(path)
            make_folders(os.path.dirname(path), Owner(0, 0))
        _remove(path)
        return os.open(path, CREATE_FILE, mode & 0o777)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _finish(made: int | str, mode: int, owner: Owner) -> None:
    """Set what a new file or folder does not have already: looking is much cheaper than writing it down once more."""
    info = os.stat(made)
    if (info.st_uid, info.st_gid) != owner:
        os.chown(made, owner.uid, owner.gid)
        info = os.stat(made)
    if info.st_mode & 0o7777 != mode & 0o7777:
        os.chmod(made, stat.S_IMODE(mode))
