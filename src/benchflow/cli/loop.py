"""Runs a command's coroutine so that Ctrl-C and a polite kill both clean up before the process ends."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
from typing import TYPE_CHECKING

from benchflow.cli.console import print_error

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

FILES = 65536
"""Open files and connections that a run may have, where the system allows it."""

INTERRUPTED = 130
TERMINATED = 143


def run(work: Coroutine[object, object, int], drain: Callable[[], bool] | None = None) -> int:
    """The coroutine's exit code, or that of the signal which cancelled it; its clean-up has then run.

    With `drain` the first Ctrl-C only calls it; where it says that something is being finished, the coroutine goes on
    to its end, and the next Ctrl-C cancels it.
    """
    stopped_by: list[int] = []
    drains = [drain] if drain else []

    async def guarded() -> int:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            if number == signal.SIGINT and drains and drains.pop()():
                sys.stderr.write("\nfinishing what runs, starting nothing more; once more to cancel it\n")
                return
            if not stopped_by:
                sys.stderr.write("\ncleaning up; once more to stop waiting for it\n")
            stopped_by.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        return await task

    _raise_file_limit()
    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        if not stopped_by:
            raise
        print_error("interrupted" if stopped_by[0] == signal.SIGINT else "terminated")
        return INTERRUPTED if stopped_by[0] == signal.SIGINT else TERMINATED


def _raise_file_limit() -> None:
    """Many rollouts hold many connections; what the system allows at most is often a hundred times its default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
