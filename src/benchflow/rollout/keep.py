"""What an agent left, kept so that it can be scored again later, without the agent.

What is kept is the difference to the image, as the sandbox tells it from outside: what was made or changed as an
archive, and the names of what was removed. Where a sandbox cannot tell, or its image has no GNU tar, it is the
workspace alone. Processes are not kept: work that consists of a running server cannot be scored again.

What agents put into their own folders at home is left out, because it may hold a login; work in which one of the
rollout's secrets is found is not kept at all.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import tarfile
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.errors import SandboxError
from benchflow.rollout.store import write_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from benchflow.sandbox.base import Sandbox, Stream

FOLDER = "workspace"
"""Where a rollout keeps what its agents left."""

LIMIT = 4 * 1024**3
"""Bytes that are kept of one rollout at most, before they are compressed."""

TIMEOUT = 600.0
"""Seconds that keeping, or putting back, may take."""

CHUNK = 1024 * 1024
WORDS_KEPT = 4096
"""Bytes of what tar said last that an error may quote."""

ARCHIVE = "state.tar.gz"

_HAS_TAR = "tar --version | grep -q GNU && command -v xargs"
_PACK = ["tar", "-cf", "-", "-C", "/", "--no-recursion", "--null", "--numeric-owner", "--ignore-failed-read", "-T", "-"]
_UNPACK = ["tar", "-xpf", "-", "-C", "/", "--numeric-owner"]


class NotKept(Exception):
    """Why there is nothing to score again, in words."""


async def keep_state(
    sandbox: Sandbox, folder: Path, *, leave_out: Iterable[str] = (), secrets: Sequence[str] = ()
) -> None:
    """Keep what differs from the image in `folder`, without what lies below `leave_out`.

    Raises NotKept when it is too much or holds a secret, and SandboxError when the sandbox fails.
    """
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    about: dict[str, object] = {"sandbox": sandbox.backend, "workdir": sandbox.workdir}
    try:
        async with asyncio.timeout(TIMEOUT):
            if sandbox.capabilities.changes and (await sandbox.exec(_HAS_TAR, user=0, cwd="/")).ok:
                about |= await _keep_changes(sandbox, folder / ARCHIVE, leave_out, secrets)
            else:
                about |= await _keep_workspace(sandbox, folder / ARCHIVE, secrets)
    except BaseException as error:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        if isinstance(error, TimeoutError):
            raise NotKept(f"copying it out took longer than {TIMEOUT:g} s") from None
        raise
    # Written last: without it, what lies here is not whole.
    write_json(folder / "kept.json", about)


def is_kept(folder: Path) -> bool:
    return (folder / "kept.json").is_file()


async def restore_state(sandbox: Sandbox, folder: Path) -> None:
    """Make a sandbox that was just started from the image what `keep_state` saw. Raises NotKept or SandboxError."""
    try:
        about = json.loads((folder / "kept.json").read_bytes())
        kind, removed = about["kind"], about.get("removed", [])
    except (OSError, ValueError, LookupError, TypeError):
        raise NotKept(f"{folder} does not hold what an agent left") from None
    async with asyncio.timeout(TIMEOUT):
        if kind == "workspace":
            await _restore_workspace(sandbox, folder / ARCHIVE)
            return
        gone = await sandbox.exec(["xargs", "-0", "rm", "-rf", "--"], user=0, cwd="/", stdin=_joined(removed))
        if not gone.ok:
            raise _failed(sandbox, "what the agent removed could not be", gone.stderr)
        await _unpack(sandbox, folder / ARCHIVE)


# -- the difference to the image -----------------------------------------------------------------------------


async def _keep_changes(
    sandbox: Sandbox, target: Path, leave_out: Iterable[str], secrets: Sequence[str]
) -> dict[str, object]:
    outside = [*await _mounts(sandbox), *leave_out]
    changes = [change for change in await sandbox.changes() if not _below(change.path, outside)]
    await _pack(sandbox, [change.path for change in changes if change.kind != "deleted"], target, secrets)
    # What was changed goes as well before it comes back: it may have been a folder, which no file can replace.
    gone = [one.path for one in changes if one.kind == "deleted" or (one.kind == "modified" and one.type != "folder")]
    return {"kind": "changes", "removed": gone}


async def _mounts(sandbox: Sandbox) -> list[str]:
    """Where something other than the sandbox's own files is: that belongs to the machine, not to the work."""
    seen = await sandbox.exec(["cat", "/proc/self/mounts"], user=0, cwd="/", timeout=TIMEOUT)
    places = [line.split(" ")[1] for line in seen.text.splitlines() if line.count(" ") > 1]
    return [place.encode().decode("unicode_escape") for place in places if place != "/"]


def _below(name: str, places: Iterable[str]) -> bool:
    return any(name == place or name.startswith(f"{place}/") for place in places)


def _joined(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\0" for name in names).encode("utf-8", "surrogateescape")


async def _pack(sandbox: Sandbox, names: list[str], target: Path, secrets: Sequence[str]) -> None:
    watch = _Watch(secrets)
    async with await sandbox.open(_PACK, user=0, cwd="/") as stream, _together() as group:
        group.create_task(_feed(stream, _joined(name.removeprefix("/") or "." for name in names)))
        errors = group.create_task(_last_words(stream.stderr))
        with gzip.open(target, "wb", compresslevel=1) as file:
            while chunk := await stream.stdout.read(CHUNK):
                watch.see(chunk)
                await asyncio.to_thread(file.write, chunk)
        # 1: a file went while it was read, which is no reason to keep nothing.
        if (code := await stream.wait()) > 1:
            raise _failed(sandbox, f"tar exited {code}", await errors)


async def _unpack(sandbox: Sandbox, source: Path) -> None:
    async with await sandbox.open(_UNPACK, user=0, cwd="/") as stream, _together() as group:
        group.create_task(_last_words(stream.stdout))
        errors = group.create_task(_last_words(stream.stderr))
        with gzip.open(source, "rb") as file, suppress(BrokenPipeError):
            while chunk := await asyncio.to_thread(file.read, CHUNK):
                await stream.write(chunk)
            await stream.close_stdin()
        if code := await stream.wait():
            raise _failed(sandbox, f"tar exited {code}", await errors)


@asynccontextmanager
async def _together() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that raises the first error as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _feed(stream: Stream, data: bytes) -> None:
    with suppress(BrokenPipeError):
        for start in range(0, len(data), CHUNK):
            await stream.write(data[start : start + CHUNK])
        await stream.close_stdin()


async def _last_words(reader: asyncio.StreamReader) -> bytes:
    """The end of what a program says: one that an agent may have replaced can go on for ever."""
    kept = b""
    while chunk := await reader.read(CHUNK):
        kept = (kept + chunk)[-WORDS_KEPT:]
    return kept


class _Watch:
    """Counts what passes and looks for secrets in it, also across two chunks. Raises NotKept."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = [secret.encode() for secret in secrets if secret]
        self._overlap = max((len(secret) for secret in self._secrets), default=1) - 1
        self._tail = b""
        self._seen = 0

    def see(self, chunk: bytes) -> None:
        self._seen += len(chunk)
        if self._seen > LIMIT:
            raise NotKept(f"what the agent left is more than {LIMIT >> 20} MiB")
        joined = self._tail + chunk
        if any(secret in joined for secret in self._secrets):
            raise NotKept("a credential is in what the agent left")
        self._tail = joined[-self._overlap :] if self._overlap else b""


# -- the workspace alone -------------------------------------------------------------------------------------


async def _keep_workspace(sandbox: Sandbox, target: Path, secrets: Sequence[str]) -> dict[str, object]:
    if sandbox.workdir == "/":
        raise NotKept("this sandbox cannot tell what was changed, and its working folder is /")
    with tempfile.TemporaryDirectory(prefix="benchflow-") as scratch:
        await sandbox.get(sandbox.workdir, Path(scratch))
        await asyncio.to_thread(_pack_folder, Path(scratch), target, secrets)
    return {"kind": "workspace"}


def _pack_folder(folder: Path, target: Path, secrets: Sequence[str]) -> None:
    watch = _Watch(secrets)

    class Watched:
        """A file for the archive that is looked at as it is written."""

        def __init__(self, file: gzip.GzipFile) -> None:
            self._file = file

        def write(self, data: bytes) -> int:
            watch.see(data)
            return self._file.write(data)

    with gzip.open(target, "wb", compresslevel=1) as file, tarfile.open(fileobj=Watched(file), mode="w|") as tar:  # type: ignore[call-overload]
        tar.add(folder, ".")


async def _restore_workspace(sandbox: Sandbox, source: Path) -> None:
    emptied = await sandbox.exec(
        ["/bin/sh", "-c", 'cd "$1" && rm -rf -- ..?* .[!.]* *', "sh", sandbox.workdir], user=0, cwd="/", timeout=TIMEOUT
    )
    if not emptied.ok:
        raise _failed(sandbox, f"{sandbox.workdir} could not be emptied", emptied.stderr)
    with tempfile.TemporaryDirectory(prefix="benchflow-") as scratch:
        await asyncio.to_thread(_unpack_folder, source, Path(scratch))
        await sandbox.put(Path(scratch), sandbox.workdir)


def _unpack_folder(source: Path, folder: Path) -> None:
    with tarfile.open(source, "r:gz") as tar:
        tar.extractall(folder, filter="tar")


def _failed(sandbox: Sandbox, what: str, words: bytes) -> SandboxError:
    said = words.decode("utf-8", "replace").strip()[-500:]
    return SandboxError(f"{what}: {said}", backend=sandbox.backend, sandbox=sandbox.id, phase="workspace")
