"""A command in a box with its three standard streams, as `Sandbox.open` gives it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Self

from benchflow.sandbox.local.commands import pipe_in, pipe_out
from benchflow.sandbox.local.guest import wire
from benchflow.settle import finished

if TYPE_CHECKING:
    from types import TracebackType

    from benchflow.sandbox.local.commands import Command, Host
    from benchflow.sandbox.local.guest.messages import ExecRequest

LINE_LIMIT = 16 * 1024 * 1024
"""Bytes of one line that `readline` takes, and half of what is buffered before the command has to wait."""

CHUNK = 256 * 1024


class PipeReader(asyncio.ReadTransport):
    """Feeds a pipe into a StreamReader as that has room. Owns the descriptor."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.stream = asyncio.StreamReader(limit=LINE_LIMIT)
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._paused = False
        os.set_blocking(descriptor, False)
        self.stream.set_transport(self)
        self._loop.add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, CHUNK)
        except BlockingIOError:
            return
        if data:
            self.stream.feed_data(data)
        else:
            self.close()

    def pause_reading(self) -> None:
        if self._descriptor >= 0 and not self._paused:
            self._paused = True
            self._loop.remove_reader(self._descriptor)

    def resume_reading(self) -> None:
        if self._descriptor >= 0 and self._paused:
            self._paused = False
            self._loop.add_reader(self._descriptor, self._read)

    def is_closing(self) -> bool:
        return self._descriptor < 0

    def close(self) -> None:
        """End the stream. What was read before can still be had."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
            self.stream.feed_eof()


class PipeWriter:
    """Writes to a pipe, waiting while it is full. Owns the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._turn = asyncio.Lock()
        self._room: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)

    async def write(self, data: bytes) -> None:
        """Write all of it. Raises BrokenPipeError when nobody reads any more, or this end was closed."""
        async with self._turn:
            rest = memoryview(data)
            while rest:
                if self._descriptor < 0:
                    raise BrokenPipeError("the input of the command is closed")
                try:
                    rest = rest[os.write(self._descriptor, rest[:CHUNK]) :]
                except BlockingIOError:
                    await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        self._room = self._loop.create_future()
        self._loop.add_writer(self._descriptor, self._wake)
        try:
            await self._room
        finally:
            if self._descriptor >= 0:
                self._loop.remove_writer(self._descriptor)

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    async def close(self) -> None:
        """Close behind what is being written."""
        async with self._turn:
            self.drop()

    def drop(self) -> None:
        """Close at once; whoever is writing sees a broken pipe."""
        if self._descriptor >= 0:
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
            self._wake()


class LocalStream:
    """See `Stream` for what it promises. Make one with `open_stream`."""

    def __init__(self, command: Command, stdin: PipeWriter, stdout: PipeReader, stderr: PipeReader) -> None:
        self._command = command
        self._stdin = stdin
        self._stdout = stdout
        self._stderr = stderr

    @property
    def stdout(self) -> asyncio.StreamReader:
        return self._stdout.stream

    @property
    def stderr(self) -> asyncio.StreamReader:
        return self._stderr.stream

    async def write(self, data: bytes) -> None:
        await self._stdin.write(data)

    async def close_stdin(self) -> None:
        await self._stdin.close()

    async def wait(self) -> int:
        return await self._command.wait()

    async def signal(self, number: int) -> None:
        self._command.signal(number)

    async def kill(self) -> None:
        self._stdin.drop()
        try:
            await finished(self._command.kill())
        finally:
            self._stdout.close()
            self._stderr.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()


async def open_stream(box: Host, request: ExecRequest) -> LocalStream:
    """Start a command and talk to it; see `Sandbox.open`."""
    feed, given = pipe_in()
    (printed, out), (complained, err) = pipe_out(), pipe_out()
    stdin, stdout, stderr = PipeWriter(feed), PipeReader(printed), PipeReader(complained)
    try:
        command = await box.launch(request, [given, out, err])
    except BaseException:
        stdin.drop()
        stdout.close()
        stderr.close()
        raise
    finally:
        wire.close_all([given, out, err])
    return LocalStream(command, stdin, stdout, stderr)
