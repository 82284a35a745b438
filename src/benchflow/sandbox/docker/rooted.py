"""Files of a container through its root directory, as the host's root: no call to the engine, no tar.

The model: every path is resolved by the kernel with the container's root as `/` (openat2, RESOLVE_IN_ROOT), so links,
`..` and races inside lead nowhere else. What was opened is pinned first without being opened for use (O_PATH), and
only a regular file or a folder is then used: a device node made inside, which the container itself may not open,
is never opened by us. Everything here blocks; call it from a thread.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchflow.sandbox.archive import CHUNK, ArchiveError, Item, write_sparse
from benchflow.sandbox.landing import MAX_DEPTH, Landing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

RACE_ATTEMPTS = 50
"""How often a step is tried again when names change under it."""

_OPENAT2 = 437
_NO_MAGICLINKS, _IN_ROOT = 0x02, 0x10
_PIN = os.O_PATH | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def openat2(root: int, path: str, flags: int) -> int:
    """A descriptor of `path` resolved with `root` as `/`. Raises OSError."""
    how = _OpenHow(flags, 0, _IN_ROOT | _NO_MAGICLINKS)
    for _ in range(RACE_ATTEMPTS):
        descriptor = int(
            _libc.syscall(_OPENAT2, root, os.fsencode(path), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how)))
        )
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(number, os.strerror(number), path)


@contextmanager
def _held(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _reopened(pinned: int, flags: int) -> int:
    """Open for use what was pinned; it is the same thing whatever happened to its name."""
    return os.open(f"/proc/self/fd/{pinned}", flags | os.O_CLOEXEC)


@dataclass(slots=True)
class _Way:
    """One copy to the host: where it goes, the devices that are left out, and files with several names, by identity.

    Those come out with several names too: a copy for each could be any number of times what is inside.
    """

    landing: Landing
    skipped: frozenset[int]
    linked: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict)


class Rooted:
    """The files below `root`, a descriptor of a container's root directory that the caller keeps open.

    Once `halted` is true a copy ends with InterruptedError.
    """

    def __init__(self, root: int, halted: Callable[[], bool] = lambda: False) -> None:
        self._root = root
        self._halted = halted

    def probe(self) -> None:
        """Raises OSError where the kernel cannot resolve paths this way."""
        os.close(self._pin("/"))

    # -- out -----------------------------------------------------------------------------------------------

    def read(self, path: str, limit: int) -> bytes:
        """The content of a regular file. Raises FileNotFoundError; ArchiveError for another kind or a longer one."""
        with _held(self._pin(path, os.O_NOFOLLOW)) as pinned:
            status = os.fstat(pinned)
            if not stat.S_ISREG(status.st_mode):
                raise ArchiveError(f"{path} is not a regular file")
            with open(_reopened(pinned, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                content = file.read(limit + 1)
        if len(content) > limit:
            raise ArchiveError(f"{path} is longer than {limit} bytes")
        return content

    def get(self, path: str, target: Path) -> None:
        """Copy a file or folder to the host (see `Landing`). Raises FileNotFoundError, ArchiveError and OSError."""
        with _held(self._pin(path)) as pinned:
            kind = os.fstat(pinned).st_mode
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                raise ArchiveError(f"{path} is not a file or a folder")
            with Landing(target) as landing:
                self._land(pinned, (), _Way(landing, self._kernel_devices()))

    def _land(self, pinned: int, parts: tuple[str, ...], way: _Way) -> None:
        status, landing = os.fstat(pinned), way.landing
        if stat.S_ISREG(status.st_mode):
            identity = (status.st_dev, status.st_ino)
            if identity in way.linked:
                landing.hard_link(parts, way.linked[identity])
                return
            with (
                _held(_reopened(pinned, os.O_RDONLY | os.O_NONBLOCK)) as source,
                _held(landing.file(parts, status.st_mode)) as target,
            ):
                write_sparse(self._chunks(source, status.st_size), target, status.st_size)
            if parts and status.st_nlink > 1:
                way.linked[identity] = parts
        elif stat.S_ISDIR(status.st_mode) and (not parts or status.st_dev not in way.skipped):
            if len(parts) > MAX_DEPTH:
                raise ArchiveError(f"more than {MAX_DEPTH} folders deep")
            landing.folder(parts, status.st_mode)
            with _held(_reopened(pinned, os.O_RDONLY | os.O_DIRECTORY)) as folder:
                for name in os.listdir(folder):  # noqa: PTH208  a descriptor
                    # A name that is gone by now is not there.
                    with (
                        suppress(FileNotFoundError),
                        _held(os.open(name, _PIN | os.O_NOFOLLOW, dir_fd=folder)) as child,
                    ):
                        if stat.S_ISLNK(os.fstat(child).st_mode):
                            landing.link((*parts, name), os.readlink("", dir_fd=child))
                        else:
                            self._land(child, (*parts, name), way)

    def _kernel_devices(self) -> frozenset[int]:
        """The kernel's own file systems, whose files do not end."""
        found = set()
        for path in ("/proc", "/sys"):
            with suppress(OSError), _held(self._pin(path)) as pinned:
                found.add(os.fstat(pinned).st_dev)
        with _held(self._pin("/")) as pinned:
            return frozenset(found - {os.fstat(pinned).st_dev})

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files, links and trees; absent ones are fine. Links are not followed. Raises ArchiveError, OSError."""
        for path in paths:
            head, _, name = path.rstrip("/").rpartition("/")
            with (
                suppress(FileNotFoundError, NotADirectoryError),
                _held(openat2(self._root, head or "/", _FOLDER)) as at,
            ):
                if stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                    try:
                        shutil.rmtree(name, dir_fd=at)
                    except RecursionError:
                        raise ArchiveError(f"{path} holds folders too deep to remove") from None
                else:
                    os.unlink(name, dir_fd=at)

    # -- in ------------------------------------------------------------------------------------------------

    def put(self, items: Sequence[Item], target: str, owner: tuple[int, int]) -> None:
        """Write `items` below `target`, or as `target`; folders that exist are left as they are. Raises OSError."""
        path = target.rstrip("/")
        held, parent = "", -1
        try:
            for item in items:
                self._go_on()
                place = f"{path}/{item.name}" if item.name else path
                if item.kind == "folder":
                    os.close(self._folder(place, owner, item.mode))
                    continue
                head = place.rpartition("/")[0]
                if held != head or parent < 0:
                    if parent >= 0:
                        os.close(parent)
                        parent = -1
                    held, parent = head, self._folder(head)
                self._put_item(item, parent, place, owner)
        finally:
            if parent >= 0:
                os.close(parent)

    def _put_item(self, item: Item, parent: int, place: str, owner: tuple[int, int]) -> None:
        name = place.rpartition("/")[2]
        if item.kind == "link":
            _replacing(name, parent, lambda: os.symlink(item.link, name, dir_fd=parent))
            os.chown(name, *owner, dir_fd=parent, follow_symlinks=False)
            return
        with _held(self._file(parent, place)) as descriptor:
            os.fchown(descriptor, *owner)
            os.fchmod(descriptor, item.mode)
            self._fill(descriptor, item)

    def _fill(self, descriptor: int, item: Item) -> None:
        if isinstance(item.content, bytes):
            write_sparse((item.content,), descriptor, len(item.content))
            return
        with item.content.open("rb", buffering=0) as source:
            status = os.fstat(source.fileno())
            write_sparse(self._chunks(source.fileno(), status.st_size), descriptor, status.st_size)
            os.utime(descriptor, ns=(status.st_mtime_ns, status.st_mtime_ns))

    def _folder(self, path: str, owner: tuple[int, int] = (0, 0), mode: int = 0o755) -> int:
        """A folder, made if it is missing; the parents that it then lacks are root's."""
        try:
            return openat2(self._root, path or "/", _FOLDER)
        except FileNotFoundError:
            head, _, name = path.rpartition("/")
            with _held(self._folder(head)) as parent, suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
                with _held(os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)) as made:
                    os.fchown(made, *owner)
                    os.fchmod(made, mode)
            return openat2(self._root, path, _FOLDER)

    def _file(self, parent: int, place: str) -> int:
        """A new file, or an existing one emptied where its name is a link or is not to be taken away."""
        name = place.rpartition("/")[2]
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            status = None
        if status is None or not stat.S_ISLNK(status.st_mode):
            try:
                return _replacing(name, parent, lambda: os.open(name, _NEW_FILE, 0o600, dir_fd=parent))
            except OSError as error:
                # A file that something is mounted on cannot be replaced, only written.
                if error.errno != errno.EBUSY:
                    raise
        with _held(self._pin(place)) as pinned:
            if not stat.S_ISREG(os.fstat(pinned).st_mode):
                raise OSError(errno.EEXIST, "something that is no file has the name", place)
            return _reopened(pinned, os.O_WRONLY | os.O_TRUNC)

    def _chunks(self, source: int, size: int) -> Iterator[bytes | int]:
        """At most `size` bytes of a file, which may be shorter by now; a hole of any length comes as a number."""
        self._go_on()
        offset = 0
        while offset < size:
            start, end = _data(source, offset, size)
            if start > offset:
                yield start - offset
            offset = start
            while offset < end:
                chunk = os.pread(source, min(CHUNK, end - offset), offset)
                if not chunk:
                    return
                offset += len(chunk)
                yield chunk
                self._go_on()

    def _go_on(self) -> None:
        if self._halted():
            raise InterruptedError("nobody wants the copy any more")

    def _pin(self, path: str, flags: int = 0) -> int:
        try:
            return openat2(self._root, path, _PIN | flags)
        except NotADirectoryError as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error


def _data(source: int, offset: int, size: int) -> tuple[int, int]:
    """Where the first data at or behind `offset` begins and ends, within `size` bytes."""
    try:
        start = os.lseek(source, offset, os.SEEK_DATA)
        return min(start, size), min(os.lseek(source, start, os.SEEK_HOLE), size)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size, size
        if error.errno == errno.EINVAL:  # a file system that does not tell
            return offset, size
        raise


def _replacing[T](name: str, parent: int, make: Callable[[], T]) -> T:
    """Make something of that name, after taking away what has it; a folder is not taken away."""
    for _ in range(RACE_ATTEMPTS):
        try:
            return make()
        except FileExistsError:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=parent)
    raise OSError(errno.EBUSY, "the name is being changed all the time", name)
