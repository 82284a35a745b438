"""Files in and out of a box, from the host's side.

The host opens one file, or has the helper detach one folder, and hands it over; all paths of the box are walked inside
it, and what is not small is copied there, so that nothing in here blocks the loop or trusts a path.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.errors import SandboxError
from benchflow.sandbox.base import FileData
from benchflow.sandbox.local.guest import wire
from benchflow.sandbox.local.guest.files import copy_data
from benchflow.sandbox.local.guest.messages import HANDED_OVER
from benchflow.sandbox.local.talk import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchflow.sandbox.local.guest.messages import PutRequest
    from benchflow.sandbox.local.helper import Helper
    from benchflow.sandbox.local.talk import Control


class Transfer:
    """Copies between the host and one box."""

    def __init__(self, control: Control, helper: Helper) -> None:
        self._control = control
        self._helper = helper

    async def put(self, source: Path | Mapping[str, FileData | bytes], target: str, *, owner: str | int | None) -> None:
        """See `Sandbox.put`. Raises FileNotFoundError for a missing source, ValueError for a name that climbs."""
        who = "0" if owner is None else str(owner)
        request: PutRequest = {"kind": "data", "target": target, "owner": who, "mode": 0, "files": []}
        if isinstance(source, Path):
            handle = await self._open_source(source, request)
        else:
            handle = _gather(source, request)
        with _closing(handle):
            await self._control.call("put", {**request}, [handle])

    async def _open_source(self, source: Path, request: PutRequest) -> int:
        mode = os.stat(source).st_mode  # noqa: PTH116 - one call that does not wait for a disk worth speaking of
        if stat.S_ISDIR(mode):
            request["kind"] = "tree"
            return await self._tree(source, writable=False)
        if not stat.S_ISREG(mode):
            raise SandboxError(f"{source} is neither a file nor a folder", backend="local", phase="put")
        request["kind"] = "file"
        request["mode"] = stat.S_IMODE(mode)
        return os.open(source, os.O_RDONLY | os.O_CLOEXEC)

    async def get(self, path: str, target: Path) -> None:
        """See `Sandbox.get`."""
        async with self._control.talk("get", {"path": path, "new": _is_new(target)}) as talk:
            try:
                answer, descriptors = await talk.answer()
            except Refused as error:
                raise _not_found(error, path) from error
            if answer["kind"] == "open":
                with _closing(descriptors[0]) as source:
                    _make_folder(target.parent)
                    with _new_file(target, answer["mode"]) as handle:
                        copy_data(source, handle, at_most=HANDED_OVER)
            elif answer["kind"] == "few":
                copy_few(answer["files"], descriptors, target)
            elif answer["kind"] == "tree":
                _make_folder(target)
                with _closing(await self._tree(target, writable=True)) as handle:
                    await talk.say({}, [handle])
                await talk.answer()
            else:
                _make_folder(target.parent)
                with _new_file(target, answer["mode"]) as handle:
                    await talk.say({}, [handle])
                    await talk.answer()

    async def read(self, path: str, limit: int) -> bytes:
        """See `Sandbox.read`."""
        try:
            _, descriptors = await self._control.call("read", {"path": path, "limit": limit})
        except Refused as error:
            raise _not_found(error, path) from error
        with _closing(descriptors[0]) as handle:
            return os.pread(handle, limit, 0)

    async def _tree(self, path: Path, *, writable: bool) -> int:
        """A descriptor of a detached copy of a host folder, which whoever holds it cannot leave."""
        where = str(Path.cwd() / path)
        _, descriptors = await self._helper.call("tree", {"path": where, "writable": writable})
        return descriptors[0]


def _make_folder(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)


def _is_new(target: Path) -> bool:
    """Whether nothing is in the way of a folder there."""
    try:
        with os.scandir(target) as entries:
            return next(entries, None) is None
    except FileNotFoundError:
        return not target.is_symlink()
    except OSError:
        return False


def copy_few(rows: Sequence[tuple[str, int, int]], sources: Sequence[int], target: Path) -> None:
    """A new folder with these files. The names come from the box: none of them may lead anywhere else."""
    try:
        _make_folder(target)
        for (name, mode, modified), source in zip(rows, sources, strict=True):
            if name in {"", ".", ".."} or "/" in name or "\0" in name:
                raise SandboxError(f"{name!r} is no name of a file", backend="local", phase="get")
            with _new_file(target / name, mode) as handle:
                copy_data(source, handle, at_most=HANDED_OVER)
                os.utime(handle, ns=(modified, modified))
    finally:
        wire.close_all(sources)


def _not_found(error: Refused, path: str) -> Exception:
    if error.number == errno.ENOENT:
        return FileNotFoundError(errno.ENOENT, "no such file in the sandbox", path)
    return error


def _gather(files: Mapping[str, FileData | bytes], request: PutRequest) -> int:
    """All contents in a row in one memory file, and a list of them in the request."""
    contents = []
    for name, data in files.items():
        if not name or "\0" in name or any(part in {"", ".", ".."} for part in name.split("/")):
            raise ValueError(f"{name!r} is no plain relative path")
        given = data if isinstance(data, FileData) else FileData(data)
        request["files"].append((name, given.mode, len(given.content)))
        contents.append(given.content)
    return wire.memory_file(b"".join(contents))


@contextmanager
def _closing(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def _new_file(target: Path, mode: int) -> Iterator[int]:
    """A file beside `target` that takes its place when all went well, and is gone when not."""
    partial = target.with_name(f".{secrets.token_hex(8)}.partial")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        yield handle
        os.fchmod(handle, mode | 0o400)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)
