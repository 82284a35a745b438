"""Taking from processes that already run, and from all they will ever start, the power to make symbolic links.

A filter of system calls can only be loaded by the process that it is for. So everything is brought to a halt, one
thread of each process is made to load the filter for all of them (as a debugger calls a function), and everything goes
on where it was. That it was loaded is seen by the kernel's own count of filters, not by what the process answers.
A process that cannot be held to it is killed. Knows x86_64 alone: elsewhere `SUPPORTED` is false.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SUPPORTED = platform.machine() == "x86_64" and struct.calcsize("P") == 8

HALT_TIMEOUT = 2.0
"""Seconds that a thread may take to come to a halt. One that waits for a child which uses its memory takes longer."""

_STEP = 0.0005
_SINGLESTEP, _GETREGS, _SETREGS, _DETACH = 9, 12, 13, 17
_SEIZE, _INTERRUPT, _GETSIGMASK, _SETSIGMASK = 0x4206, 0x4207, 0x420A, 0x420B
_EXITKILL, _WALL = 0x100000, 0x40000000
_SYSCALL = b"\x0f\x05"
_CODE_64 = 0x33
_SECCOMP, _SET_MODE_FILTER, _TSYNC = 317, 1, 1
_STEPS = 8

_NATIVE, _SECONDARY, _X32 = 0xC000003E, 0x40000003, 0x40000000
_LINKS = {_NATIVE: (88, 266), _SECONDARY: (83, 304)}
_QUEUED = (425, 426, 427)
"""io_uring, by which links are made without a system call of their own."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


class _Registers(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi"),
            *("orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs"),
        )
    )


class Unbound(Exception):
    """A process could not be made to load the filter."""


@contextmanager
def restrained(find: Callable[[], set[int]], kill: Callable[[int], None]) -> Iterator[Callable[[], None]]:
    """Bind the plain users' among the processes that `find` names, until it names no other one. In the block they are
    halted; those that could not be bound are dead then, by `kill`. What is given is to be called now and then in a
    long block: whoever ends in it is not gone before.

    Everything here and in the block must happen in one thread. Raises OSError when this process may not trace them.
    """
    held: dict[int, set[int]] = {}
    lost: set[int] = set()
    try:
        while fresh := _threads_of(find() - lost) - {(pid, tid) for pid, tids in held.items() for tid in tids}:
            for pid, tid in sorted(fresh):
                held.setdefault(pid, set()).add(tid)
                if pid not in lost and not _halt(tid):
                    lost.add(pid)
                    kill(pid)
        for pid in sorted(held.keys() - lost):
            try:
                _bind(pid)
            except (Unbound, OSError):
                lost.add(pid)
                kill(pid)
        yield lambda: _each(held, _reap)
    finally:
        _each(held, lambda tid: _ptrace(_DETACH, tid))


def program() -> bytes:
    """The filter, as the kernel takes it: links and queued calls are not permitted, all else is as before."""
    refuse, allow = 0x00050000 | errno.EPERM, 0x7FFF0000
    lines: list[tuple[int, int, int, int]] = []

    def load(offset: int) -> None:
        lines.append((0x20, 0, 0, offset))

    def answer(value: int) -> None:
        lines.append((0x06, 0, 0, value))

    load(4)
    for arch, links in _LINKS.items():
        numbers = (*links, *_QUEUED)
        lines.append((0x15, 0, len(numbers) + 4, arch))
        load(0)
        # The third way of calling this kernel counts from a number of its own, and nobody uses it.
        lines.append((0x35, len(numbers) + 1, 0, _X32))
        lines += [(0x15, len(numbers) - index, 0, number) for index, number in enumerate(numbers)]
        answer(allow)
        answer(refuse)
    answer(refuse)
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


def _each(held: dict[int, set[int]], do: Callable[[int], object]) -> None:
    for tids in held.values():
        for tid in tids:
            with suppress(OSError):
                do(tid)


def _reap(tid: int) -> None:
    os.waitpid(tid, _WALL | os.WNOHANG)


def _halt(tid: int) -> bool:
    """Stop a thread; whether it did. One that is gone has."""
    try:
        _ptrace(_SEIZE, tid, 0, _EXITKILL)
        _ptrace(_INTERRUPT, tid)
    except OSError as error:
        # Gone; or, else, traced by another one inside.
        return error.errno == errno.ESRCH or not _is_plain(tid)
    return _await_stop(tid)


def _await_stop(tid: int) -> bool:
    deadline = time.monotonic() + HALT_TIMEOUT
    while time.monotonic() < deadline:
        try:
            if os.waitpid(tid, _WALL | os.WNOHANG)[0]:
                return True
        except ChildProcessError:
            return True
        time.sleep(_STEP)
    return False


def _bind(pid: int) -> None:
    """Have a process whose threads are all halted load the filter. Raises Unbound, OSError."""
    threads = [tid for _, tid in sorted(_threads_of({pid}))]
    if not threads:
        return
    if _has_queue(pid):
        raise Unbound("it has a queue of system calls")
    before = {tid: _filters(tid) for tid in threads}
    _load(threads[0])
    if any(_filters(tid) <= count for tid, count in before.items()):
        raise Unbound("it did not load the filter")


def _load(tid: int) -> None:
    kept = _Registers()
    _ptrace(_GETREGS, tid, 0, ctypes.addressof(kept))
    if kept.cs != _CODE_64:
        raise Unbound("it is no program of this architecture")
    filters = program()
    code, place = _places(tid, 16 + len(filters))
    content = struct.pack("<HxxxxxxQ", len(filters) // 8, place + 16) + filters
    mask, everything = ctypes.c_uint64(), ctypes.c_uint64(0xFFFFFFFFFFFFFFFF)
    memory = os.open(f"/proc/{tid}/mem", os.O_RDWR | os.O_CLOEXEC)
    try:
        former = os.pread(memory, len(content), place)
        _ptrace(_GETSIGMASK, tid, 8, ctypes.addressof(mask))
        _ptrace(_SETSIGMASK, tid, 8, ctypes.addressof(everything))
        os.pwrite(memory, content, place)
        used = _Registers.from_buffer_copy(kept)
        used.rax, used.orig_rax, used.rip = _SECCOMP, 0xFFFFFFFFFFFFFFFF, code
        used.rdi, used.rsi, used.rdx = _SET_MODE_FILTER, _TSYNC, place
        _ptrace(_SETREGS, tid, 0, ctypes.addressof(used))
        _step_over(tid, code)
        os.pwrite(memory, former, place)
        _ptrace(_SETREGS, tid, 0, ctypes.addressof(kept))
        _ptrace(_SETSIGMASK, tid, 8, ctypes.addressof(mask))
    finally:
        os.close(memory)


def _step_over(tid: int, code: int) -> None:
    now = _Registers()
    for _ in range(_STEPS):
        _ptrace(_SINGLESTEP, tid)
        if not _await_stop(tid):
            break
        _ptrace(_GETREGS, tid, 0, ctypes.addressof(now))
        if now.rip != code:
            return
    raise Unbound("it does not move")


def _places(tid: int, size: int) -> tuple[int, int]:
    """Where in a process the instruction for system calls is, and room that is its own to write."""
    code = room = 0
    with open(f"/proc/{tid}/maps", encoding="utf-8", errors="replace") as file:
        maps = [line.split(None, 5) for line in file]
    # The kernel's own page comes first: it has the instruction, and is small.
    for fields in sorted(maps, key=lambda fields: fields[-1].strip() != "[vdso]"):
        start, end = (int(number, 16) for number in fields[0].split("-"))
        if fields[1] == "rw-p" and not room and end - start >= size:
            room = start
        if fields[1] == "r-xp" and not code and start < 1 << 47:
            code = _find(tid, start, end)
    if not (code and room):
        raise Unbound("it has no room for a call")
    return code, room


def _find(tid: int, start: int, end: int) -> int:
    memory = os.open(f"/proc/{tid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        while start < end:
            part = os.pread(memory, min(end - start, 1 << 20), start)
            if (at := part.find(_SYSCALL)) >= 0:
                return start + at
            if len(part) < 2:
                break
            start += len(part) - 1
    except OSError:
        return 0
    finally:
        os.close(memory)
    return 0


def _has_queue(pid: int) -> bool:
    """Whether a process has an io_uring, which needs no further system call to be used."""
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            if "io_uring" in os.readlink(f"/proc/{pid}/fd/{name}"):
                return True
        except FileNotFoundError:
            continue
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        return any("[io_uring]" in line for line in file)


def _filters(tid: int) -> int:
    """How many filters a thread has loaded; one that is gone has enough."""
    try:
        with open(f"/proc/{tid}/status", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("Seccomp_filters:"):
                    return int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 1 << 16
    raise Unbound("the kernel does not count filters")


def _threads_of(pids: set[int]) -> set[tuple[int, int]]:
    """The threads, each with its process, of those that are not root's. What has ended is left out."""
    found = set()
    for pid in pids:
        try:
            found |= {(pid, int(name)) for name in os.listdir(f"/proc/{pid}/task") if _is_plain(int(name))}
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _is_plain(tid: int) -> bool:
    """Whether a thread lives and is not root's alone."""
    try:
        with open(f"/proc/{tid}/status", encoding="utf-8", errors="replace") as file:
            fields = dict(line.split(":", 1) for line in file if line.startswith(("State:", "Uid:")))
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields["State"].split()[0] not in ("Z", "X") and set(fields["Uid"].split()) != {"0"}


def _ptrace(request: int, tid: int, address: int = 0, data: int = 0) -> int:
    result = int(_libc.ptrace(request, tid, address, data))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace {request:#x}: {os.strerror(number)}")
    return result
