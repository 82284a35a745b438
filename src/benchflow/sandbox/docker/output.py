"""What `exec` keeps of a command's output, and how it runs a command to its end."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from benchflow.sandbox.base import ExecResult
from benchflow.settle import finished

if TYPE_CHECKING:
    from benchflow.sandbox.docker.process import Process

DRAIN = 5.0
"""Seconds without output after a command has ended, until what a background child may still print is given up."""

READ_SIZE = 256 * 1024
"""Bytes taken from an output at once."""


class Kept:
    """The head and the tail of a stream of bytes, together at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._tail_size = limit // 2
        self._head_size = limit - self._tail_size
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._head_size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        # Trimmed in large steps, so that each byte is moved a bounded number of times.
        if len(self._tail) > 2 * self._tail_size + READ_SIZE:
            self._trim()

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_size)]

    @property
    def content(self) -> bytes:
        self._trim()
        return bytes(self._head + self._tail)

    @property
    def dropped(self) -> int:
        return self.total - len(self._head) - min(len(self._tail), self._tail_size)

    async def collect(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(READ_SIZE):
            self.add(data)


async def run(process: Process, *, stdin: bytes | None, timeout: float | None, limit: int) -> ExecResult:
    """See a started command to its end. A caller that is cancelled leaves nothing of the command behind."""
    started = time.monotonic()
    out, err = Kept(limit), Kept(limit)
    readers = [asyncio.create_task(out.collect(process.stdout)), asyncio.create_task(err.collect(process.stderr))]
    feeders = [] if stdin is None else [asyncio.create_task(_feed(process, stdin))]
    timed_out = False
    try:
        try:
            async with asyncio.timeout(timeout):
                code = await process.wait()
        except TimeoutError:
            timed_out = True
            await process.kill_tree()
            code = await process.wait()
        await _drain(readers, out, err)
    except BaseException:
        await process.kill()
        raise
    finally:
        for task in (*readers, *feeders):
            task.cancel()
        await process.release()
        await finished(asyncio.gather(*readers, *feeders, return_exceptions=True))
    return ExecResult(
        exit_code=code,
        stdout=out.content,
        stderr=err.content,
        timed_out=timed_out,
        dropped=out.dropped + err.dropped,
        duration=time.monotonic() - started,
    )


async def _drain(readers: list[asyncio.Task[None]], *kept: Kept) -> None:
    """Until the outputs end, or nothing has come for a while because a background child holds them open."""
    while True:
        before = sum(output.total for output in kept)
        _, pending = await asyncio.wait(readers, timeout=DRAIN)
        if not pending or before == sum(output.total for output in kept):
            return


async def _feed(process: Process, data: bytes) -> None:
    with suppress(BrokenPipeError):
        await process.write(data)
        await process.close_stdin()


async def glance(process: Process, timeout: float) -> ExecResult:
    """See a small command of our own to its end. Raises SandboxError; one that hangs is left to its fate."""
    out, err = Kept(READ_SIZE), Kept(READ_SIZE)
    try:
        async with asyncio.timeout(timeout):
            await asyncio.gather(out.collect(process.stdout), err.collect(process.stderr))
            code = await process.wait()
    except TimeoutError:
        return ExecResult(137, out.content, err.content, timed_out=True)
    finally:
        await process.release()
    return ExecResult(code, out.content, err.content)
