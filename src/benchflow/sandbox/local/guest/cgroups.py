"""Making, entering and removing control groups; which ones is decided on the host side."""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .messages import CgroupRequest

REMOVE_TIMEOUT = 5.0
"""Seconds until a group whose processes have ended must have become removable."""

SWAP_FILES = ("memory.swap.max", "memory.memsw.limit_in_bytes")
"""Absent where the kernel does not count swap."""


def enter(groups: list[CgroupRequest]) -> None:
    """Make each group, set its limits, and move this process into it."""
    for group in groups:
        os.makedirs(group["path"], exist_ok=True)
        for name, value in group["settings"].items():
            if name not in SWAP_FILES or os.path.exists(f"{group['path']}/{name}"):
                write(f"{group['path']}/{name}", value)
        # A process that moves its only thread spares the kernel a lock on all processes of the machine.
        thread = f"{group['path']}/tasks"
        write(thread if os.path.exists(thread) else f"{group['path']}/cgroup.procs", "0")


def write(path: str, value: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, value.encode())
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(handle)


def remove(path: str) -> None:
    """Remove a group whose processes have ended. The kernel reports a busy group for a moment after that, with no
    event to wait for, so this asks again until `REMOVE_TIMEOUT`."""
    deadline = time.monotonic() + REMOVE_TIMEOUT
    pause = 0.0005
    while not remove_now(path):
        if time.monotonic() > deadline:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def remove_now(path: str) -> bool:
    """Remove a group, unless the kernel takes it for busy; whether it is gone."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True
