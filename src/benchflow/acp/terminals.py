"""The terminals an agent asks its client for (`terminal/*`): commands in the sandbox, run as the agent's own user.

A terminal keeps the end of its output, standard output and error in the order they were written, and its exit code,
until it is released; then, or when the session ends, its process is killed and what it did becomes a `note`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from acp.exceptions import RequestError

from benchflow.trajectory.events import event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from acp.schema import (
        CreateTerminalRequest,
        KillTerminalRequest,
        ReleaseTerminalRequest,
        TerminalOutputRequest,
        WaitForTerminalExitRequest,
    )

    from benchflow.sandbox.base import Sandbox, Stream
    from benchflow.trajectory.events import Event

TERMINALS_LIMIT = 64
"""Terminals that an agent may have at the same time."""

TERMINAL_OUTPUT_LIMIT = 1024 * 1024
"""Bytes kept of the end of a terminal's output; an agent may ask for less."""

COMMAND_KEPT = 64 * 1024
"""Characters of a terminal's command that are recorded."""

TERMINAL_DRAIN = 1.0
"""Seconds that the output of an ended command is still waited for, since a child of it may hold the pipe open."""

READ_SIZE = 64 * 1024


class Terminals:
    """The terminals of one session; `close` releases what the agent left."""

    def __init__(
        self,
        sandbox: Sandbox,
        record: Callable[[Event], None],
        *,
        user: str | int | None,
        env: Mapping[str, str],
        cwd: str,
    ) -> None:
        self._sandbox = sandbox
        self._record = record
        self._user = user
        self._env = env
        self._cwd = cwd
        self._open: dict[str, _Terminal] = {}
        self._made = 0

    async def create(self, request: CreateTerminalRequest) -> dict[str, object]:
        """Answers `terminal/create`. A command without arguments is a shell line, as other clients take it."""
        if len(self._open) >= TERMINALS_LIMIT:
            raise RequestError.invalid_params({"details": f"more than {TERMINALS_LIMIT} terminals: release one"})
        if request.args:
            argv = ["sh", "-c", 'exec "$@" 2>&1', "sh", request.command, *request.args]
        else:
            argv = ["sh", "-c", 'exec sh -c "$1" 2>&1', "sh", request.command]
        env = {**self._env, **{variable.name: variable.value for variable in request.env or ()}}
        stream = await self._sandbox.open(argv, user=self._user, env=env, cwd=request.cwd or self._cwd)
        self._made += 1
        name = f"term-{self._made}"
        asked = TERMINAL_OUTPUT_LIMIT if request.output_byte_limit is None else request.output_byte_limit
        command = " ".join([request.command, *(request.args or ())])[:COMMAND_KEPT]
        self._open[name] = _Terminal(stream, command, min(asked, TERMINAL_OUTPUT_LIMIT))
        return {"terminalId": name}

    async def output(self, request: TerminalOutputRequest) -> dict[str, object]:
        return self._find(request.terminal_id).output()

    async def wait_for_exit(self, request: WaitForTerminalExitRequest) -> dict[str, object]:
        return {"exitCode": await self._find(request.terminal_id).wait()}

    async def kill(self, request: KillTerminalRequest) -> dict[str, object]:
        await self._find(request.terminal_id).kill()
        return {}

    async def release(self, request: ReleaseTerminalRequest) -> dict[str, object]:
        terminal = self._find(request.terminal_id)
        del self._open[request.terminal_id]
        await self._end(request.terminal_id, terminal)
        return {}

    async def close(self) -> None:
        """Release every terminal."""
        while self._open:
            await self._end(*self._open.popitem())

    def _find(self, name: str) -> _Terminal:
        terminal = self._open.get(name)
        if terminal is None:
            raise RequestError.invalid_params({"details": f"no terminal {name}"})
        return terminal

    async def _end(self, name: str, terminal: _Terminal) -> None:
        await terminal.close()
        about = {"terminal_id": name, "command": terminal.command, **terminal.output()}
        self._record(event("note", about="terminal", data=about))


class _Terminal:
    def __init__(self, stream: Stream, command: str, limit: int) -> None:
        self.command = command
        self._stream = stream
        self._limit = limit
        self._kept = bytearray()
        self._truncated = False
        self._exit_code: int | None = None
        self._reader = asyncio.create_task(self._read())
        self._waiter = asyncio.create_task(self._wait())

    def output(self) -> dict[str, object]:
        # The cut may have left the last bytes of a character at the beginning.
        start = next((n for n, byte in enumerate(self._kept[:4]) if byte & 0xC0 != 0x80), 0) if self._truncated else 0
        text = self._kept[start:].decode("utf-8", "replace")
        status = {} if self._exit_code is None else {"exitStatus": {"exitCode": self._exit_code}}
        return {"output": text, "truncated": self._truncated, **status}

    async def wait(self) -> int:
        return await asyncio.shield(self._waiter)

    async def kill(self) -> None:
        await self._stream.kill()
        await asyncio.wait({self._waiter}, timeout=TERMINAL_DRAIN)

    async def close(self) -> None:
        try:
            await self.kill()
        finally:
            self._reader.cancel()
            self._waiter.cancel()
            await asyncio.gather(self._reader, self._waiter, return_exceptions=True)

    async def _read(self) -> None:
        while data := await self._stream.stdout.read(READ_SIZE):
            self._kept += data
            if len(self._kept) > self._limit:
                del self._kept[: len(self._kept) - self._limit]
                self._truncated = True

    async def _wait(self) -> int:
        code = await self._stream.wait()
        await asyncio.wait({self._reader}, timeout=TERMINAL_DRAIN)
        self._exit_code = code
        return code
