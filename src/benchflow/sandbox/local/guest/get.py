"""Copying out of a box, whose content is hostile.

What comes out is rebuilt entry by entry: folders, regular files, and links that cannot lead out of the target.
Everything else stays behind, as do owners and setuid bits. A box that changes its files meanwhile gets a torn
copy, never one that reaches further.
"""

from __future__ import annotations

import errno
import os
import stat

from .files import CREATE_FILE, OPEN_FOLDER, check_depth, copy_data, open_regular

_CHANGED_UNDER_US = {errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EINVAL, errno.ENXIO}


def stays_inside(link: str, depth: int) -> bool:
    """Whether a link `depth` folders below the top of a tree leads into that tree, whatever links it passes.

    Going up is allowed at its start alone, where the folders are real; after that every step goes down, and
    where it passes another link, this holds for that one too.
    """
    if link.startswith("/"):
        return False
    parts = [part for part in link.split("/") if part not in ("", ".")]
    rise = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    return rise <= depth and ".." not in parts[rise:]


def few(folder: int, most: int, size: int, opened: list[int]) -> list[tuple[str, int, int]] | None:
    """Name, mode and time of all files of a folder, each of them open in `opened`; owned by the caller.

    None when the folder has more than `most` entries or `size` bytes, or anything but regular files of one name.
    """
    rows: list[tuple[str, int, int]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(rows) == most or not entry.is_file(follow_symlinks=False):
                return None
            try:
                opened.append(open_regular(entry.name, directory=folder))
            except OSError:
                return None
            info = os.fstat(opened[-1])
            size -= info.st_size
            if size < 0 or info.st_nlink > 1:
                return None
            rows.append((entry.name, info.st_mode & 0o1777 | 0o400, info.st_mtime_ns))
    return rows


class Exporter:
    """Rebuilds one tree of a box in a folder of the host."""

    def __init__(self, target: int) -> None:
        self._top = target
        self._linked: dict[tuple[int, int], str] = {}
        """Files with several names, by identity: they come out with several names too, not as several files."""

    def export(self, source: int) -> None:
        """Copy what is in the folder `source` into the target, replacing what is in the way."""
        self._entries(source, self._top, ())

    def _entries(self, source: int, target: int, path: tuple[str, ...]) -> None:
        check_depth(len(path))
        with os.scandir(source) as entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        self._folder(source, target, (*path, entry.name))
                    elif entry.is_symlink():
                        self._link(source, target, entry.name, len(path))
                    elif entry.is_file(follow_symlinks=False):
                        self._file(source, target, (*path, entry.name))
                except OSError as error:
                    if error.errno not in _CHANGED_UNDER_US:
                        raise

    def _folder(self, source: int, target: int, path: tuple[str, ...]) -> None:
        name = path[-1]
        inside = os.open(name, OPEN_FOLDER, dir_fd=source)
        try:
            outside = _make_folder(name, target)
            try:
                self._entries(inside, outside, path)
                os.fchmod(outside, os.fstat(inside).st_mode & 0o1777 | 0o700)
            finally:
                os.close(outside)
        finally:
            os.close(inside)

    def _link(self, source: int, target: int, name: str, depth: int) -> None:
        text = os.readlink(name, dir_fd=source)
        if stays_inside(text, depth):
            _remove(name, target)
            os.symlink(text, name, dir_fd=target)

    def _file(self, source: int, target: int, path: tuple[str, ...]) -> None:
        name = path[-1]
        inside = open_regular(name, directory=source)
        try:
            info = os.fstat(inside)
            _remove(name, target)
            identity = (info.st_dev, info.st_ino)
            if identity in self._linked:
                os.link(self._linked[identity], name, src_dir_fd=self._top, dst_dir_fd=target, follow_symlinks=False)
                return
            mode = info.st_mode & 0o1777 | 0o400
            outside = os.open(name, CREATE_FILE, mode, dir_fd=target)
            try:
                copy_data(inside, outside)
                if os.fstat(outside).st_mode & 0o7777 != mode:
                    os.fchmod(outside, mode)
                os.utime(outside, ns=(info.st_atime_ns, info.st_mtime_ns))
            finally:
                os.close(outside)
            if info.st_nlink > 1:
                self._linked[identity] = "/".join(path)
        finally:
            os.close(inside)


def _make_folder(name: str, target: int) -> int:
    """Open the folder `name` of `target`, made anew where a link or a file is in the way."""
    try:
        return os.open(name, OPEN_FOLDER, dir_fd=target)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        os.unlink(name, dir_fd=target)
    os.mkdir(name, 0o700, dir_fd=target)
    return os.open(name, OPEN_FOLDER, dir_fd=target)


def _remove(name: str, target: int) -> None:
    try:
        info = os.stat(name, dir_fd=target, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(info.st_mode):
        os.unlink(name, dir_fd=target)
