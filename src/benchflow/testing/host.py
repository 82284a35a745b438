"""A stream and a sandbox made of plain processes of this machine, for tests of what talks to one: nothing is isolated.

For agents and commands that a test trusts. Where isolation matters use a real backend.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Self, cast

from benchflow.sandbox.base import OUTPUT_LIMIT, ExecResult, Sandbox

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType


class HostStream:
    """`Stream` over a process of this machine."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._exit = asyncio.create_task(asyncio.to_thread(process.wait))
        self._transports: list[asyncio.BaseTransport] = []
        self.stdout = asyncio.StreamReader()
        self.stderr = asyncio.StreamReader()
        self._stdin: asyncio.StreamWriter

    @classmethod
    async def start(
        cls, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> HostStream:
        process = await asyncio.to_thread(
            subprocess.Popen,
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **(env or {})},
            cwd=cwd,
        )
        stream = cls(process)
        loop = asyncio.get_running_loop()
        for reader, pipe in ((stream.stdout, process.stdout), (stream.stderr, process.stderr)):
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await loop.connect_read_pipe(lambda p=protocol: p, pipe)  # type: ignore[misc]
            stream._transports.append(transport)
        writing, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, process.stdin)
        stream._stdin = asyncio.StreamWriter(writing, flow, None, loop)
        stream._transports.append(writing)
        return stream

    async def write(self, data: bytes) -> None:
        if self._stdin.is_closing():
            raise BrokenPipeError("the process closed its input")
        self._stdin.write(data)
        try:
            await self._stdin.drain()
        except ConnectionError as error:
            raise BrokenPipeError(str(error)) from error

    async def close_stdin(self) -> None:
        self._stdin.close()

    async def wait(self) -> int:
        code = await asyncio.shield(self._exit)
        return code if code >= 0 else 128 - code

    async def signal(self, number: int) -> None:
        if not self._exit.done():
            self._process.send_signal(number)

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.shield(self._exit)
        for transport in self._transports:
            transport.close()
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()


class HostSandbox:
    """The part of `Sandbox` that serving an agent needs."""

    def __init__(self) -> None:
        self.users: list[str | int | None] = []

    async def exec(
        self,
        command: Sequence[str],
        *,
        user: str | int | None = None,
        cwd: str | None = None,
        stdin: bytes | None = None,
        timeout: float | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> ExecResult:
        self.users.append(user)
        done = await asyncio.to_thread(
            subprocess.run, command, input=stdin or b"", capture_output=True, cwd=cwd, timeout=timeout, check=False
        )
        kept = done.stdout[:output_limit]
        return ExecResult(done.returncode, kept, done.stderr, dropped=len(done.stdout) - len(kept))

    async def open(
        self,
        command: Sequence[str],
        *,
        user: str | int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> HostStream:
        self.users.append(user)
        return await HostStream.start(command, env=env, cwd=cwd)

    def as_sandbox(self) -> Sandbox:
        return cast("Sandbox", self)
