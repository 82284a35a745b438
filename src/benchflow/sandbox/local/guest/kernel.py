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
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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

_FSCONFIG_SET_FLAG, _FSCONFIG_SET_STRING, _FSCONFIG_CMD_CREATE = 0, 1, 6
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE, _CLOEXEC = -100, 0x1000, 0x8000, 1
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 1, 4

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 36, 38, 47, 4
_SECCOMP_MODE_FILTER, _CAPABILITY_VERSION_3 = 2, 0x20080522

_POSIX_SPAWN_SETSIGDEF, _POSIX_SPAWN_SETSID = 0x04, 0x80
_ROOMY, _SIGNAL_SET = 1024, 128
"""Bytes: at least what any C library needs for its description of a spawn, and exactly a set of signals."""

_libc = ctypes.CDLL(None, use_errno=True)


def _call(result: int, what: str, name: str | int = "") -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what} {name}".rstrip() + f": {os.strerror(number)}")
    return result


def _system_call(number: int, *kinds: type[ctypes._SimpleCData[Any]]) -> Callable[..., int]:
    """A system call by its number. With the kinds of its arguments known, each call takes a fraction of the time."""
    function = _libc["syscall"]
    function.argtypes = (ctypes.c_long, *kinds)
    function.restype = ctypes.c_long
    return partial(function, number)


_open_tree = _system_call(428, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_move_mount = _system_call(429, ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_fsopen = _system_call(430, ctypes.c_char_p, ctypes.c_uint)
_fsconfig = _system_call(431, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int)
_fsmount = _system_call(432, ctypes.c_int, ctypes.c_uint, ctypes.c_uint)
_mount_setattr = _system_call(442, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_size_t)


# -- mounts --------------------------------------------------------------------------------------------------


def new_mount(kind: str, options: Mapping[str, str | None], attributes: int = 0, lower: tuple[str, ...] = ()) -> int:
    """A detached mount of file system `kind`; the caller owns the descriptor. An option of None is a bare flag.

    `lower` are overlayfs lower folders, top first.
    """
    context = _call(_fsopen(kind.encode(), _CLOEXEC), "fsopen", kind)
    try:
        for path in lower:
            _configure(context, "lowerdir+", path)
        for key, value in options.items():
            _configure(context, key, value)
        _call(_fsconfig(context, _FSCONFIG_CMD_CREATE, None, None, 0), "create", kind)
        return _call(_fsmount(context, _CLOEXEC, attributes), "fsmount", kind)
    finally:
        os.close(context)


def _configure(context: int, key: str, value: str | None) -> None:
    kind = _FSCONFIG_SET_FLAG if value is None else _FSCONFIG_SET_STRING
    text = None if value is None else os.fsencode(value)
    _call(_fsconfig(context, kind, key.encode(), text, 0), "option", key if value is None else f"{key}={value}")


def clone_tree(path: str | int, *, recursive: bool = True, attributes: int = 0) -> int:
    """A detached copy of the mounts at `path` (a path or a descriptor): a bind mount without a place.

    Whoever holds only its descriptor cannot leave it: `..` at its top stays there.
    """
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | (_AT_RECURSIVE if recursive else 0)
    if isinstance(path, int):
        handle = _call(_open_tree(path, b"", flags | _AT_EMPTY_PATH), "open_tree", path)
    else:
        handle = _call(_open_tree(_AT_FDCWD, os.fsencode(path), flags), "open_tree", path)
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
    _call(_mount_setattr(mount, b"", flags, ctypes.byref(wanted), ctypes.sizeof(wanted)), "mount_setattr")


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
    _call(_move_mount(start, path, _AT_FDCWD, os.fsencode(target), flags), "move_mount to", target)


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


# -- processes -----------------------------------------------------------------------------------------------


def spawn(program: str, argv: list[str], env: Mapping[str, str], stdio: list[int]) -> int:
    """Start a program in a session of its own, with every signal as it is at the start of the world; returns its pid.

    `os.posix_spawn` leaves two signals ignored that the C library keeps for itself. Raises OSError when it cannot be
    started, ValueError for what cannot be passed to it.
    """
    passed, variables = _strings(argv), _strings([f"{name}={value}" for name, value in env.items()])
    actions, attributes = ctypes.create_string_buffer(_ROOMY), ctypes.create_string_buffer(_ROOMY)
    pid = ctypes.c_int()
    _libc.posix_spawn_file_actions_init(actions)
    _libc.posix_spawnattr_init(attributes)
    try:
        for place, descriptor in enumerate(stdio):
            _libc.posix_spawn_file_actions_adddup2(actions, descriptor, place)
        _libc.posix_spawnattr_setflags(attributes, ctypes.c_short(_POSIX_SPAWN_SETSIGDEF | _POSIX_SPAWN_SETSID))
        _libc.posix_spawnattr_setsigdefault(attributes, b"\xff" * _SIGNAL_SET)
        number = _libc.posix_spawn(ctypes.byref(pid), os.fsencode(program), actions, attributes, passed, variables)
    finally:
        _libc.posix_spawn_file_actions_destroy(actions)
        _libc.posix_spawnattr_destroy(attributes)
    if number:
        raise OSError(number, os.strerror(number), program)
    return pid.value


def _strings(texts: list[str]) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [os.fsencode(text) for text in texts]
    if any(b"\0" in text for text in encoded):
        raise ValueError("embedded null byte")
    return (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None)


# -- privileges ----------------------------------------------------------------------------------------------


_libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
_NOTHING = (0, 0, 0, 0)


def _prctl(option: int, *args: int) -> int:
    return _call(_libc.prctl(option, *args, *_NOTHING[len(args) :]), "prctl", option)


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
