"""A process that speaks JSON-RPC on its standard streams: the SDK's connection, and who is to blame when it ends.

`Link` owns the stream it is given. Its calls raise the error of the boundary that failed: `ACPError` with the agent's
own words, `AgentGone` with the exit code when the process ended, `SandboxGone` when the sandbox did.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from acp.connection import Connection
from acp.exceptions import RequestError

from benchflow.acp.stderr import Stderr
from benchflow.acp.transport import StreamTransport
from benchflow.errors import CANNOT_START, ACPError, AgentGone, SandboxError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from benchflow.sandbox.base import Stream

EXIT_GRACE = 0.5
"""Seconds an agent gets to leave once its input is closed, and again once it was asked to terminate."""

DRAIN_SECONDS = 1.0
"""Seconds without any output after which a process that ended has said all: a child of it may hold the pipe open."""

STDERR_SETTLE = 0.1
"""Seconds given to standard error to arrive after an error reply, which comes by another pipe."""

AUTH_REQUIRED = -32000

NOT_STARTED = "the agent's command must be in the task's image, or be the path of a program here that runs there"


class Link:
    """Calls and notifications to an agent; what it sends goes to `serve` (requests) and `on_notification`."""

    def __init__(
        self,
        stream: Stream,
        *,
        serve: Callable[[str, Any, bool], Awaitable[Any]],
        on_notification: Callable[[str, object], None],
        log: Callable[[str], None],
    ) -> None:
        self._stream = stream
        self._stderr = Stderr(stream.stderr, log)
        self._transport = StreamTransport(stream, on_notification, log)
        self._connection = Connection(serve, self._transport)
        self._exit = asyncio.create_task(self._watch_exit())
        self._closed = False

    @property
    def last_activity(self) -> float:
        """When the agent last sent anything or was answered, on the event loop's clock; now, while we owe an answer."""
        return asyncio.get_running_loop().time() if self._transport.serving else self._transport.last_activity

    @property
    def stderr(self) -> str:
        """The end of the agent's standard error."""
        return self._stderr.tail

    async def call(self, method: str, params: Mapping[str, object]) -> object:
        """Send a request and wait for its result, without a limit of time."""
        try:
            return await self._connection.send_request(method, dict(params))
        except RequestError as error:
            await self._stderr.settle(STDERR_SETTLE)
            raise _refusal(method, error, self.stderr) from error
        except ConnectionError as error:
            raise await self._loss(method) from error

    async def notify(self, method: str, params: Mapping[str, object]) -> None:
        """Send a notification."""
        try:
            await self._connection.send_notification(method, dict(params))
        except ConnectionError as error:
            raise await self._loss(method) from error

    async def kill(self) -> None:
        """End the process and all it started; calls that wait end with AgentGone."""
        await self._stream.kill()

    async def close(self) -> None:
        """End the process, gently first, and everything made here. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            with suppress(OSError, SandboxError):
                await self._stream.close_stdin()
                await asyncio.wait({self._exit}, timeout=EXIT_GRACE)
                if not self._exit.done():
                    await self._stream.signal(signal.SIGTERM)
                    await asyncio.wait({self._exit}, timeout=EXIT_GRACE)
        finally:
            with suppress(SandboxError):
                await self._stream.kill()
            await self._connection.close()
            await self._stderr.settle(DRAIN_SECONDS)
            await self._stderr.close()
            self._exit.cancel()
            await asyncio.gather(self._exit, return_exceptions=True)

    async def _watch_exit(self) -> int:
        """The exit code. A dead process whose child holds the pipe must not keep callers waiting for an answer."""
        try:
            code = await self._stream.wait()
            seen = -1.0
            while not self._transport.ended.is_set() and seen != self._transport.last_activity:
                seen = self._transport.last_activity
                with suppress(TimeoutError):
                    async with asyncio.timeout(DRAIN_SECONDS):
                        await self._transport.ended.wait()
            return code
        finally:
            await self._connection.close()

    async def _loss(self, method: str) -> Exception:
        """What to raise now that the connection is lost."""
        if self._transport.failure is not None:
            return self._transport.failure
        await asyncio.wait({self._exit}, timeout=3 * DRAIN_SECONDS)
        await self._stderr.settle(DRAIN_SECONDS)
        if not self._exit.done() or self._exit.cancelled():
            return AgentGone(f"the agent closed its output while it owed an answer to {method}", stderr=self.stderr)
        failed = self._exit.exception()
        if isinstance(failed, Exception):
            return failed
        code = self._exit.result()
        message = f"the agent ended with exit code {code} while it owed an answer to {method}"
        hint = NOT_STARTED if code in CANNOT_START else None
        return AgentGone(message, exit_code=code, stderr=self.stderr, hint=hint)


def _refusal(method: str, error: RequestError, stderr: str) -> ACPError:
    """The agent's error reply in its own words, those it put into `data` included."""
    details = error.data
    if isinstance(details, dict):
        details = next((details[key] for key in ("details", "message", "reason") if details.get(key)), details)
    words = str(error) if details is None or str(details) in str(error) else f"{error}: {details}"
    hint = "see `bench agent show` for the credential this agent takes" if error.code == AUTH_REQUIRED else None
    message = f"the agent answered {method} with an error: {words} (code {error.code})"
    return ACPError(message, code=error.code, data=error.data, stderr=stderr, hint=hint)
