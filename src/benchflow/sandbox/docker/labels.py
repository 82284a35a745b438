"""Labels: whose a container or an image is, so that leftovers of the dead are told from what is in use.

An owner is a process: its number, its start time, the boot and the pid namespace it counts in, and its machine. It is
dead when the number is gone or another process has it. Of an owner that cannot be judged from here (another machine,
another pid namespace) nothing is ever assumed: it counts as alive.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.sandbox.base import SandboxInfo
from benchflow.sandbox.docker.sockets import BACKEND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchflow.sandbox.base import Owner

ID = "benchflow.id"
OWNER_PID = "benchflow.owner-pid"
OWNER_START = "benchflow.owner-start-time"
OWNER_SPACE = "benchflow.owner-pid-namespace"
BOOT = "benchflow.boot-id"
MACHINE = "benchflow.machine"
JOB = "benchflow.job"
ROLLOUT = "benchflow.rollout"
CREATED = "benchflow.created"
IMAGE = "benchflow.image"
"""On an image of ours: `task` for one built from a task, `fork` for the snapshot behind a fork."""


def of_sandbox(sandbox: str, owner: Owner) -> dict[str, str]:
    """The labels of a sandbox made by this process now."""
    return {
        ID: sandbox,
        OWNER_PID: str(os.getpid()),
        OWNER_START: _start_time(os.getpid()),
        OWNER_SPACE: _pid_namespace(),
        BOOT: _boot(),
        MACHINE: _machine(),
        JOB: owner.job,
        ROLLOUT: owner.rollout,
        CREATED: f"{time.time():.3f}",
    }


def read(labels: Mapping[str, str], state: str) -> SandboxInfo:
    """The sandbox that carries these labels."""
    return SandboxInfo(
        backend=BACKEND,
        id=labels.get(ID, ""),
        job=labels.get(JOB, ""),
        rollout=labels.get(ROLLOUT, ""),
        owner_pid=int(_number(labels.get(OWNER_PID))),
        owner_alive=owner_alive(labels),
        created=_number(labels.get(CREATED)),
        state=state,
    )


def owner_alive(labels: Mapping[str, str]) -> bool:
    """Whether the process that made what carries these labels lives, as far as can be known from here."""
    if labels.get(MACHINE) != _machine():
        return True
    if labels.get(BOOT) != _boot():
        return False
    if labels.get(OWNER_SPACE) != _pid_namespace():
        return True
    pid = int(_number(labels.get(OWNER_PID)))
    return pid > 0 and _start_time(pid) == labels.get(OWNER_START)


def _start_time(pid: int) -> str:
    """When a process started, in the kernel's ticks since the boot; empty if there is none or it is only a zombie."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        if fields[0] not in {b"Z", b"X"}:
            return fields[19].decode()
    return ""


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


@cache
def _machine() -> str:
    with suppress(OSError):
        if text := Path("/etc/machine-id").read_text(encoding="ascii").strip():
            return text
    return os.uname().nodename


def _pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _number(text: str | None) -> float:
    with suppress(ValueError):
        return float(text or 0)
    return 0.0
