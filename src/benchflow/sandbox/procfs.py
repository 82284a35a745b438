"""What the kernel tells about a process, read so that a process becoming another program is not mistaken for one
without variables or words: for a moment of that the kernel shows neither. Everything here blocks.
"""

from __future__ import annotations

import time

EXEC_TIMEOUT = 30.0
"""Seconds that a process may be in the middle of becoming another program."""

EXEC_STEP = 0.0005
"""Seconds between two looks at such a process."""

EXITING = 0x4
"""The kernel's flag, in `stat_fields(pid)[6]`, of a process that is ending."""

_KERNEL_THREAD = 0x200000
"""That of a thread of its own, which has no program either."""


def read_proc(path: str) -> bytes:
    """The content of a small file of /proc. Raises OSError."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  scanned often
        parts = []
        while part := file.read(1 << 16):
            parts.append(part)
        return b"".join(parts)


def stat_fields(pid: int) -> list[bytes]:
    """What /proc/PID/stat says behind the name, which may hold anything: the state is first. Raises OSError."""
    return read_proc(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def environment(pid: int) -> bytes:
    """The variables that a process was started with, each with a NUL after it. Raises OSError."""
    return _of_a_program(pid, "environ")


def command_line(pid: int) -> bytes:
    """The words that a process was started with, each with a NUL after it. Raises OSError."""
    return _of_a_program(pid, "cmdline")


def _of_a_program(pid: int, name: str) -> bytes:
    path = f"/proc/{pid}/{name}"
    deadline = time.monotonic() + EXEC_TIMEOUT
    while not (content := read_proc(path)) and time.monotonic() < deadline:
        before = _layout(pid)
        content = read_proc(path)
        if content or not before or (before[0] != b"0" and _layout(pid) == before):
            break
        time.sleep(EXEC_STEP)
    return content


def _layout(pid: int) -> list[bytes]:
    """Where the program of a process is in memory: it differs from that of the program before, and its first number,
    which the kernel sets last, is 0 until everything is in place. Empty for a process that has none."""
    fields = stat_fields(pid)
    if fields[0] in {b"Z", b"X"} or int(fields[6]) & (EXITING | _KERNEL_THREAD):
        return []
    return [fields[24], fields[25], *fields[45:49]]
