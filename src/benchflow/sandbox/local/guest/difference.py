"""What a stack of changed overlay layers makes different from the layers below, told from outside.

`differences` reads the layers themselves and never the merged view, so nothing that runs over them can hide anything.
Both kinds of layers are given top first; what is hidden (by a whiteout, an opaque folder) is hidden as the kernel does.
Marks of the kernel are attributes in the `space` that the overlay was mounted with, which nothing inside can write; in
any other they mean nothing.
"""

from __future__ import annotations

import errno
import os
import stat

MAX_DEPTH = 400
"""Folders below folders that are looked into; deeper ones are an error."""

MAX_CHANGES = 400_000
"""Changes that are listed; more are an error, because nobody could judge them."""

_CHUNK = 1 << 20

type Row = tuple[str, str, str, int, int, int, str]
"""path, kind, type, mode, uid, gid, target of a link."""


type _Folder = tuple[str, list[str], list[str], bool]
"""path, the changed folders that make it up, those of the base, and whether what the base has is hidden."""


def differences(changed: list[str], base: list[str], unread: str, read: list[str], space: str) -> list[Row]:
    """Every path that is not as in `base`. Raises OSError.

    Below `unread` no content is compared, but for what has or lies below one of the names in `read`.

    Kinds: `added`, `modified`, `deleted`, and `touched` for what was written or re-owned with the same content, as far
    as that was looked at. A folder that merely holds changes is not listed; of one that something else has taken the
    place of, everything is.
    """
    rows: list[Row] = []
    names_read = frozenset(read)
    work: list[_Folder] = [("", changed, base, False)]
    while work:
        path, tops, lowers, opaque = work.pop()
        if path.count("/") > MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, f"folders more than {MAX_DEPTH} deep", path)
        names = dict.fromkeys(name for top in tops for name in os.listdir(top))
        if opaque:
            names.update(dict.fromkeys(name for lower in lowers for name in os.listdir(lower)))
        lax = bool(unread) and f"{path}/".startswith(f"{unread}/") and names_read.isdisjoint(path.split("/"))
        for name in names:
            looked = not lax or name in names_read
            row, below = _look(f"{path}/{name}", tops, lowers, looked=looked, replaced=not tops, space=space)
            rows += row
            work += below
            if len(rows) > MAX_CHANGES:
                raise OSError(errno.EFBIG, f"more than {MAX_CHANGES} changes")
    return sorted(rows)


def _look(
    path: str, tops: list[str], lowers: list[str], *, looked: bool, replaced: bool, space: str
) -> tuple[list[Row], list[_Folder]]:
    """What is to be said of one path, and the folder it is, if that has to be looked into."""
    name = path.rpartition("/")[2]
    above, folders, hides = _find(name, tops, space)
    below, originals, _ = _find(name, lowers, space)
    if above is None:
        if below is None:
            return [], []
        was = below[1]
        row = (path, "deleted", _type(was), was.st_mode & 0o7777, was.st_uid, was.st_gid, "")
        return [row], [(path, [], originals, True)] if replaced and originals else []
    place, info = above
    inside: list[_Folder] = []
    if stat.S_ISDIR(info.st_mode):
        if below is None or not stat.S_ISDIR(below[1].st_mode):
            kind = "modified" if below else "added"
        elif (info.st_mode, info.st_uid, info.st_gid) != (below[1].st_mode, below[1].st_uid, below[1].st_gid):
            kind = "touched"
        else:
            kind = ""
        inside = [(path, folders, originals, hides and bool(originals))]
    else:
        kind = _kind(place, info, below, looked=looked, space=space)
        inside = [(path, [], originals, True)] if originals else []
    if not kind:
        return [], inside
    link = os.readlink(place) if stat.S_ISLNK(info.st_mode) else ""
    return [(path, kind, _type(info), info.st_mode & 0o7777, info.st_uid, info.st_gid, link)], inside


def _find(name: str, layers: list[str], space: str) -> tuple[tuple[str, os.stat_result] | None, list[str], bool]:
    """What has a name in layers, the folders that make it up if it is one, and whether it hides what is below all."""
    top: tuple[str, os.stat_result] | None = None
    folders: list[str] = []
    for layer in layers:
        place = f"{layer}/{name}"
        try:
            info = os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISCHR(info.st_mode) and info.st_rdev == 0:
            return top, folders, True
        top = top or (place, info)
        if not stat.S_ISDIR(info.st_mode):
            return top, folders, True
        folders.append(place)
        if _marked(place, f"{space}.overlay.opaque") or _marked(place, f"{space}.overlay.redirect"):
            return top, folders, True
    return top, folders, False


def _kind(
    place: str, info: os.stat_result, below: tuple[str, os.stat_result] | None, *, looked: bool, space: str
) -> str:
    if below is None:
        return "added"
    original, was = below
    if stat.S_IFMT(info.st_mode) != stat.S_IFMT(was.st_mode):
        return "modified"
    if stat.S_ISLNK(info.st_mode):
        if os.readlink(place) != os.readlink(original):
            return "modified"
    elif stat.S_ISREG(info.st_mode):
        copied = looked and not _marked(place, f"{space}.overlay.metacopy")
        if info.st_size != was.st_size or (copied and not _same(place, original)):
            return "modified"
        if not looked:
            return "touched"
    same = (info.st_mode, info.st_uid, info.st_gid) == (was.st_mode, was.st_uid, was.st_gid)
    return "" if same else "touched"


def _same(one: str, other: str) -> bool:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    first, second = os.open(one, flags), os.open(other, flags)
    try:
        while True:
            left, right = os.read(first, _CHUNK), os.read(second, _CHUNK)
            if left != right:
                return False
            if not left:
                return True
    finally:
        os.close(first)
        os.close(second)


def _marked(place: str, attribute: str) -> bool:
    try:
        os.getxattr(place, attribute, follow_symlinks=False)
    except OSError:
        return False
    return True


def present(base: list[str], paths: list[str], space: str) -> list[str]:
    """Which of `paths` there are in `base`, by these names and no link on the way."""
    return [path for path in paths if _at(base, path, space)[0] is not None]


def _at(base: list[str], path: str, space: str) -> tuple[tuple[str, os.stat_result] | None, list[str]]:
    found, layers = None, base
    for name in path.strip("/").split("/"):
        found, layers, _ = _find(name, layers, space)
    return found, layers


def stage(base: list[str], paths: list[str], folder: str, space: str) -> None:
    """Copy what `base` has at `paths`, folders with all that is in them, below `folder`. Raises OSError."""
    for path in paths:
        found, folders = _at(base, path, space)
        if found is not None:
            target = f"{folder}/{path.strip('/')}"
            os.makedirs(os.path.dirname(target), exist_ok=True)
            _copy(found, folders, target, space)


def _copy(found: tuple[str, os.stat_result], folders: list[str], target: str, space: str) -> None:
    place, info = found
    if os.path.lexists(target) and not stat.S_ISDIR(info.st_mode):
        return
    if stat.S_ISLNK(info.st_mode):
        os.symlink(os.readlink(place), target)
    elif stat.S_ISREG(info.st_mode):
        source = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        new = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            while chunk := os.read(source, _CHUNK):
                os.write(new, chunk)
            os.fchmod(new, info.st_mode & 0o7777)
        finally:
            os.close(source)
            os.close(new)
    elif stat.S_ISDIR(info.st_mode):
        os.makedirs(target, exist_ok=True)
        os.chmod(target, info.st_mode & 0o7777)
        for name in dict.fromkeys(name for layer in folders for name in os.listdir(layer)):
            child, below, _ = _find(name, folders, space)
            if child is not None:
                _copy(child, below, f"{target}/{name}", space)


def _type(info: os.stat_result) -> str:
    for name, test in (("file", stat.S_ISREG), ("folder", stat.S_ISDIR), ("link", stat.S_ISLNK)):
        if test(info.st_mode):
            return name
    return "other"
