"""Runs one command of an installation: its output goes to a log line by line, its end is kept for the error."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from benchflow.errors import AgentInstallError
from benchflow.settle import finished

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

type Log = Callable[[str], None]

KEPT_LINES = 40
"""How many of a command's last lines are kept for the error it may end in."""

LINE_LIMIT = 1024 * 1024
"""The longest line of output in bytes; a longer one is cut."""


BARE_VARIABLES = frozenset({
    "HOME", "LANG", "LC_ALL", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
    "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
})  # fmt: skip
"""What a `bare` command has of this process's variables: the way to the network, and no key."""


async def run(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, bare: bool = False, log: Log
) -> str:
    """Run a command to its end and return the last lines it printed.

    `env` is laid over this process's variables or, for a `bare` command, over `BARE_VARIABLES` alone. When cancelled,
    the command and everything it started is killed first. Raises AgentInstallError with the end of its output when it
    fails or cannot be started.
    """
    inherited = {name: value for name, value in os.environ.items() if not bare or name in BARE_VARIABLES}
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env={**inherited, **(env or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=LINE_LIMIT,
        )
    except OSError as error:
        raise AgentInstallError(f"{argv[0]} could not be started: {error}") from error
    tail: deque[str] = deque(maxlen=KEPT_LINES)
    try:
        assert process.stdout is not None
        async for line in _lines(process.stdout):
            tail.append(line)
            log(line)
        code = await process.wait()
    finally:
        await _end(process)
    if code != 0:
        raise AgentInstallError(f"`{' '.join(argv)}` exited with {code}", stderr="\n".join(tail))
    return "\n".join(tail)


async def in_thread[**P, R](function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Like `asyncio.to_thread`, but a cancellation waits until the function is through, so it races with nothing."""
    return await finished(asyncio.to_thread(function, *args, **kwargs))


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    while True:
        try:
            raw = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            raw = error.partial
        except asyncio.LimitOverrunError as error:
            raw = await reader.readexactly(error.consumed)
        if not raw:
            return
        yield raw.decode("utf-8", "replace").rstrip()


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
