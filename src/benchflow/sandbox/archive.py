"""Files on their way into a sandbox and out of it, as tar streams.

In: `listing` reads what is to be put, once, into plain items; `pack` turns them into a tar, chunk by chunk. Out:
`unpack` writes a tar that a sandbox gave to a place on the host, through `Landing`, which keeps it there. Names are
text with undecodable bytes kept as surrogates, so every name Linux allows passes both ways. Memory stays flat
whatever the size of a file, and long runs of zeros become holes.
"""

from __future__ import annotations

import os
import stat
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from benchflow.sandbox.base import FileData
from benchflow.sandbox.landing import Landing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

CHUNK = 256 * 1024
"""Bytes moved at once."""

FILE_LIMIT = 64 * 1024**3
"""Bytes of the longest file that is taken out of an archive: it has zeros for a hole, which may be of any length."""

_ZEROS = bytes(CHUNK)


class ArchiveError(Exception):
    """What came out of a sandbox cannot be unpacked as asked."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to put. `name` is relative to the target, empty for the target itself; `content` is a path or bytes."""

    name: str
    kind: Literal["file", "folder", "link"]
    mode: int
    content: Path | bytes = b""
    link: str = ""


def listing(source: Path | Mapping[str, FileData | bytes]) -> list[Item]:
    """What `put` is given, as items, folders before what is in them; sockets, pipes and devices are left out.

    The folders that a mapping's names lie in are listed too, with the target first. A folder that exists already is
    to be left as it is. Raises FileNotFoundError and other OSErrors, and ValueError for a name that is absolute or
    climbs.
    """
    if isinstance(source, Path):
        return list(_walk(source, "", follow=True))
    items = {"": Item("", "folder", 0o755)}
    for name, data in source.items():
        parts = name.split("/")
        if "\0" in name or any(part in {"", ".", ".."} for part in parts):
            raise ValueError(f"{name!r} is no plain relative path")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            items.setdefault(folder, Item(folder, "folder", 0o755))
        given = data if isinstance(data, FileData) else FileData(data)
        items[name] = Item(name, "file", given.mode, given.content)
    return list(items.values())


def _walk(path: Path, name: str, *, follow: bool = False) -> Iterator[Item]:
    status = path.stat() if follow else path.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        yield Item(name, "link", 0o777, link=os.readlink(path))  # noqa: PTH115  the text as it is
    elif stat.S_ISREG(status.st_mode):
        yield Item(name, "file", mode, path)
    elif stat.S_ISDIR(status.st_mode):
        yield Item(name, "folder", mode)
        for child in sorted(os.listdir(path)):  # noqa: PTH208  names only
            yield from _walk(path / child, f"{name}/{child}" if name else child)


def pack(items: Iterable[Item], *, prefix: str = "", uid: int = 0, gid: int = 0) -> Iterator[bytes]:
    """A tar of `items`, all owned by `uid` and `gid`, their names below `prefix` (a path without a leading slash).

    Files of the host keep their time of change; everything else is as of now.
    Raises OSError when a file cannot be read or changes its size meanwhile.
    """
    now = int(time.time())
    for item in items:
        name = "/".join(part for part in (prefix, item.name) if part)
        info = tarfile.TarInfo(name or ".")
        info.uid, info.gid, info.mode, info.mtime = uid, gid, item.mode, now
        if item.kind == "folder":
            info.type = tarfile.DIRTYPE
        elif item.kind == "link":
            info.type, info.linkname = tarfile.SYMTYPE, item.link
        if item.kind == "file":
            yield from _pack_file(info, item.content)
        else:
            yield _header(info)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _pack_file(info: tarfile.TarInfo, content: Path | bytes) -> Iterator[bytes]:
    if isinstance(content, bytes):
        info.size = len(content)
        yield _header(info) + content + _padding(info.size)
        return
    with content.open("rb") as file:
        status = os.fstat(file.fileno())
        info.size, info.mtime = status.st_size, int(status.st_mtime)
        yield _header(info)
        left = info.size
        while left:
            chunk = file.read(min(CHUNK, left))
            if not chunk:
                raise OSError(f"{content} shrank while it was being read")
            left -= len(chunk)
            yield chunk
    yield _padding(info.size)


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


def unpack(stream: BinaryIO, target: Path) -> None:
    """Write a tar to the host. The first part of every name stands for `target`: a file there becomes `target`, what
    is in a folder there goes into it.

    Nothing is written outside `target` (see `Landing`). Links that would leave it, devices, sockets, pipes and names
    that climb are left out. Raises ArchiveError when the archive is malformed or holds nothing that can be written,
    and OSError when the host refuses.
    """
    landed = False
    try:
        with tarfile.open(fileobj=stream, mode="r|", errors="surrogateescape") as archive, Landing(target) as landing:
            for member in archive:
                landed |= _land(archive, member, landing)
                archive.members.clear()  # type: ignore[attr-defined]  # it would remember them all
    except (tarfile.TarError, ValueError, EOFError, OverflowError) as error:
        raise ArchiveError(f"malformed archive: {error}") from error
    if not landed:
        raise ArchiveError("not a file or a folder")


def _land(archive: tarfile.TarFile, member: tarfile.TarInfo, landing: Landing) -> bool:
    """Whether the member was one that may land."""
    parts = _parts(member.name)
    if parts is None:
        return False
    if member.isdir():
        landing.folder(parts, member.mode)
    elif member.issym():
        landing.link(parts, member.linkname)
    elif member.islnk():
        original = _parts(member.linkname)
        if not parts or not original:
            return False
        landing.hard_link(parts, original)
    elif member.isreg():
        if member.size > FILE_LIMIT:
            raise ArchiveError(f"{'/'.join(parts)} is longer than {FILE_LIMIT} bytes")
        descriptor = landing.file(parts, member.mode)
        with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123  a descriptor
            content = archive.extractfile(member)
            assert content is not None
            write_sparse(iter(lambda: content.read(CHUNK), b""), file.fileno(), member.size)
    else:
        return False
    return bool(parts) or not member.issym()


def _parts(name: str) -> tuple[str, ...] | None:
    """The parts below the first one; None for a name that climbs."""
    parts = tuple(part for part in name.split("/") if part not in {"", "."})
    return None if ".." in parts else parts[1:]


def write_sparse(chunks: Iterable[bytes | int], descriptor: int, size: int) -> None:
    """Write `chunks` to the start of a file of `size` bytes, leaving out runs of zeros; a number is so many of them."""
    os.ftruncate(descriptor, size)
    offset = 0
    for chunk in chunks:
        if isinstance(chunk, int):
            offset += chunk
        elif chunk != (_ZEROS if len(chunk) == CHUNK else _ZEROS[: len(chunk)]):
            view = memoryview(chunk)
            while view:
                written = os.pwrite(descriptor, view, offset)
                offset += written
                view = view[written:]
        else:
            offset += len(chunk)
