"""From a started process to a session that can be prompted, and what to do when the pipe breaks on the way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from benchflow.acp.session import Session
from benchflow.errors import AgentGone, AgentTimeout
from benchflow.trajectory.events import event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchflow.acp.session import SessionOptions
    from benchflow.sandbox.base import Sandbox, Stream
    from benchflow.trajectory.events import Event

CONNECT_TIMEOUT = 180.0
"""Seconds from the start of an agent to its session. Python agents have been seen to take 40 on a busy machine."""

CONNECT_RETRIES = 3
"""How often a broken pipe while connecting is tried again."""

CONNECT_BACKOFF = 1.0
"""Seconds before the first of these tries; each later one waits twice as long."""


def no_log(line: str) -> None:
    """A log that keeps nothing."""


async def connect(
    stream: Stream,
    sandbox: Sandbox,
    options: SessionOptions,
    *,
    on_event: Callable[[Event], None],
    log: Callable[[str], None] = no_log,
    timeout: float = CONNECT_TIMEOUT,
) -> Session:
    """Open a session with the agent at the other end of `stream`, which is the session's from now on.

    `on_event` gets every event as it happens, `log` the agent's standard error and what else it writes, line by line.
    What the agent asks for is done in `sandbox`. Raises ACPError, AgentGone or AgentTimeout; the process is then ended.
    """
    session = Session(stream, sandbox, options, on_event=on_event, log=log)
    try:
        async with asyncio.timeout(timeout):
            await session.open()
    except TimeoutError as error:
        tail = session.stderr
        await session.close()
        raise AgentTimeout(f"the agent did not open a session within {timeout:g} s", stderr=tail) from error
    except BaseException:
        await session.close()
        raise
    return session


async def connect_with_retry(
    open_stream: Callable[[], Awaitable[Stream]],
    sandbox: Sandbox,
    options: SessionOptions,
    *,
    on_event: Callable[[Event], None],
    log: Callable[[str], None] = no_log,
    timeout: float = CONNECT_TIMEOUT,
    retries: int = CONNECT_RETRIES,
    backoff: float = CONNECT_BACKOFF,
) -> Session:
    """Like `connect`, on a stream from `open_stream`; a pipe that breaks meanwhile is opened again, with longer waits.

    Raises what `connect` raises, and the last ConnectionError once the tries are used up.
    """
    for attempt in range(retries + 1):
        try:
            return await connect(await open_stream(), sandbox, options, on_event=on_event, log=log, timeout=timeout)
        except ConnectionError as error:
            hopeless = isinstance(error, AgentGone) and not error.retryable
            if hopeless or attempt == retries:
                raise
            wait = backoff * 2**attempt
            on_event(event("note", about="connecting again", data={"reason": str(error), "after_seconds": wait}))
            await asyncio.sleep(wait)
    raise AssertionError("the last attempt returns or raises")
