"""Running a program of the host from the zygote's world."""

from __future__ import annotations

import os
import select
import signal

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


COMPLAINT_LIMIT = 4096
"""Bytes of a failed program's complaint that are passed on."""


def run(argv: list[str], *, leash: int | None = None) -> None:
    """Run a program until it ends or goes to the background. Raises OSError with its complaint when it fails.

    With a `leash` it is killed as soon as there is something to read from that, its end included.
    """
    complaint = os.memfd_create("complaint", os.MFD_CLOEXEC)
    try:
        move = [(os.POSIX_SPAWN_DUP2, complaint, 2)]
        # Python ignores these two, and some programs take offence.
        default = [signal.SIGPIPE, signal.SIGXFSZ]
        env = {"PATH": PATH, "LC_ALL": "C"}
        pid = os.posix_spawnp(argv[0], argv, env, file_actions=move, setsigdef=default)
        if leash is not None and _is_pulled(leash, pid):
            os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code != 0:
            text = os.pread(complaint, COMPLAINT_LIMIT, 0).decode(errors="replace").strip()
            raise OSError(f"{argv[0]} ended with {code}: {text}")
    finally:
        os.close(complaint)


def _is_pulled(leash: int, pid: int) -> bool:
    """Wait for the leash or the end of a child, whichever comes first."""
    child = os.pidfd_open(pid)
    try:
        return child not in select.select([child, leash], [], [])[0]
    finally:
        os.close(child)
