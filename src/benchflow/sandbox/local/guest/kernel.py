"""Linux system calls that the standard library lacks, as thin functions that raise OSError.

Mounts are made with the descriptor-based mount interface (Linux 5.2 and later): a mount is first built detached,
without a place, and then moved to where it belongs. So everything that needs the host's paths is prepared before
the root changes, and everything that needs the box's paths happens after, where a link in a hostile image can
only lead into the box itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

ATTR_RDONLY = 0x01
ATTR_NOSUID = 0x02
ATTR_NODEV = 0x04
ATTR_NOEXEC = 0x08

MNT_DETACH = 2
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MS_SLAVE = 1 << 19

# The same numbers on every architecture, because these calls are younger than the common table.
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 442
_FSCONFIG_SET_FLAG, _FSCONFIG_SET_STRING, _FSCONFIG_CMD_CREATE = 0, 1, 6
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE, _CLOEXEC = -100, 0x1000, 0x8000, 1
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 1, 4

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 36, 38, 47, 4
_SECCOMP_MODE_FILTER, _CAPABILITY_VERSION_3 = 2, 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _call(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _syscall(number: int, what: str, *args: int | bytes | ctypes.Structure | None) -> int:
    passed = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return _call(_libc.syscall(ctypes.c_long(number), *passed), what)


# -- mounts --------------------------------------------------------------------------------------------------


def new_mount(kind: str, options: Mapping[str, str | None], attributes: int = 0, lower: tuple[str, ...] = ()) -> int:
    """A detached mount of file system `kind`; the caller owns the descriptor. An option of None is a bare flag.

    `lower` are overlayfs lower folders, top first.
    """
    context = _syscall(_FSOPEN, f"fsopen {kind}", os.fsencode(kind), _CLOEXEC)
    try:
        for path in lower:
            _configure(context, "lowerdir+", path)
        for key, value in options.items():
            _configure(context, key, value)
        _syscall(_FSCONFIG, f"create {kind}", context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return _syscall(_FSMOUNT, f"fsmount {kind}", context, _CLOEXEC, attributes)
    finally:
        os.close(context)


def _configure(context: int, key: str, value: str | None) -> None:
    kind = _FSCONFIG_SET_FLAG if value is None else _FSCONFIG_SET_STRING
    text = None if value is None else os.fsencode(value)
    _syscall(_FSCONFIG, f"option {key}={value}", context, kind, key.encode(), text, 0)


def clone_tree(path: str | int, *, recursive: bool = True, attributes: int = 0) -> int:
    """A detached copy of the mounts at `path` (a path or a descriptor): a bind mount without a place.

    Whoever holds only its descriptor cannot leave it: `..` at its top stays there.
    """
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | (_AT_RECURSIVE if recursive else 0)
    if isinstance(path, int):
        handle = _syscall(_OPEN_TREE, f"open_tree fd {path}", path, b"", flags | _AT_EMPTY_PATH)
    else:
        handle = _syscall(_OPEN_TREE, f"open_tree {path}", _AT_FDCWD, os.fsencode(path), flags)
    if attributes:
        try:
            set_attributes(handle, attributes, recursive=recursive)
        except OSError:
            os.close(handle)
            raise
    return handle


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def set_attributes(mount: int, attributes: int, *, recursive: bool = False) -> None:
    """Add attributes to a mount given by descriptor."""
    wanted = _MountAttr(attr_set=attributes)
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    result = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(mount),
        b"",
        ctypes.c_uint(flags),
        ctypes.byref(wanted),
        ctypes.c_size_t(ctypes.sizeof(wanted)),
    )
    _call(result, "mount_setattr")


def place(mount: int, target: str) -> None:
    """Attach a detached mount at `target`; closes the descriptor."""
    try:
        move(mount, target)
    finally:
        os.close(mount)


def move(mount: int | str, target: str) -> None:
    """Attach a detached mount, or move an attached one given by path, with all that is mounted below it."""
    if isinstance(mount, int):
        start, path, flags = mount, b"", _MOVE_MOUNT_F_EMPTY_PATH
    else:
        start, path, flags = _AT_FDCWD, os.fsencode(mount), 0
    _syscall(_MOVE_MOUNT, f"move_mount to {target}", start, path, _AT_FDCWD, os.fsencode(target), flags)


def mount_by_text(kind: str, target: str, options: str) -> None:
    """The classic mount call: one text of options, at most a page long, attached at once."""
    source = kind.encode()
    _call(_libc.mount(source, os.fsencode(target), source, ctypes.c_ulong(0), os.fsencode(options)), f"mount {kind}")


def set_propagation(kind: int) -> None:
    """Make every mount of this mount namespace private or a slave of the one it was copied from."""
    _call(_libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | kind), None), "mount propagation")


def unmount(path: str) -> None:
    """Detach at once; the file system goes when its last user does."""
    _call(_libc.umount2(os.fsencode(path), MNT_DETACH), f"umount {path}")


def change_root(mount: int) -> None:
    """Make a detached mount the root of this mount namespace and drop the former root with everything under it."""
    move(mount, "/")
    enter_root(mount)


def enter_root(mount: int) -> None:
    """The second half of `change_root`, for a mount that already lies over the root; closes the descriptor."""
    os.fchdir(mount)
    os.close(mount)
    _call(_libc.pivot_root(b".", b"."), "pivot_root")
    unmount(".")
    os.chdir("/")


# -- privileges ----------------------------------------------------------------------------------------------


def _prctl(option: int, *args: int) -> int:
    padded = [*args, *[0] * (4 - len(args))]
    return _call(_libc.prctl(ctypes.c_int(option), *(ctypes.c_ulong(arg) for arg in padded)), f"prctl {option}")


def die_with_parent(signal_number: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def hide_memory() -> None:
    """Nobody without CAP_SYS_PTRACE may trace this process or open its memory, environment, root or descriptors."""
    _prctl(_PR_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    """Descendants whose parent dies become children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def limit_capabilities(allowed: int) -> None:
    """Keep at most the capabilities of the bit mask `allowed`, for this process and all it will ever start."""
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(64):
        if not allowed >> capability & 1:
            try:
                _prctl(_PR_CAPBSET_DROP, capability)
            except OSError as error:
                if error.errno == errno.EINVAL:
                    break
                raise
    header = _CapHeader(version=_CAPABILITY_VERSION_3, pid=0)
    data = (_CapData * 2)()
    _call(_libc.capget(ctypes.byref(header), data), "capget")
    for index in range(2):
        mask = allowed >> 32 * index & 0xFFFFFFFF
        data[index].permitted &= mask
        data[index].effective = data[index].permitted
        data[index].inheritable = 0
    _call(_libc.capset(ctypes.byref(header), data), "capset")


def no_new_privileges() -> None:
    """No program started from now on gains anything by a setuid bit or file capabilities."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def load_filter(program: bytes) -> None:
    """Install a compiled seccomp filter. It stays for this process and all it will ever start."""
    loaded = _Program(len(program) // 8, program)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(loaded))


def name_process(name: str) -> None:
    """Set the short name of this process, at most 15 bytes of it."""
    handle = os.open("/proc/self/comm", os.O_WRONLY | os.O_CLOEXEC)
    os.write(handle, name.encode()[:15])
    os.close(handle)


def rename_process(name: str) -> None:
    """Show `name` in process lists, in place of a command line full of the host's paths."""
    name_process(name)
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    text = name.encode()[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))
