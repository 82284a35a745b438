"""Commands in a box, from the host's side: the leash of each, and running one to its end."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from benchflow.errors import SandboxError, SandboxGone
from benchflow.sandbox.base import ExecResult
from benchflow.sandbox.local.guest import wire
from benchflow.sandbox.local.output import Collector, Feeder
from benchflow.settle import finished

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchflow.sandbox.local.channel import Channel
    from benchflow.sandbox.local.guest.messages import ExecRequest

KILL_TIMEOUT = 10.0
"""Seconds that a killed tree of processes may take to disappear before everything in the box is killed."""

NOT_STARTED, KILLED = 126, 137


class Host(Protocol):
    """What a command needs of its box."""

    @property
    def id(self) -> str: ...

    async def responds(self) -> bool:
        """Whether the box lives."""
        ...

    async def launch(self, request: ExecRequest, stdio: Sequence[int]) -> Command:
        """Start a command. Raises SandboxGone."""
        ...

    async def kill(self) -> None:
        """End every process but the first one."""
        ...

    def forget(self, command: Command) -> None:
        """The command's tree is gone or was released."""
        ...


def exec_request(
    command: str | Sequence[str], *, user: str | int | None, env: Mapping[str, str] | None, cwd: str | None
) -> ExecRequest:
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    return {"argv": argv, "env": dict(env or {}), "cwd": cwd or "/", "user": "0" if user is None else str(user)}


class Command:
    """A command that was started, and everything it started. It ends with `kill` or with `release`."""

    def __init__(self, leash: Channel, box: Host) -> None:
        self._leash = leash
        self._box = box
        self._code: int | None = None
        self._exited = asyncio.Event()
        self._over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(leash.fileno(), self._read)
        self.complaint = b""
        """Why it could not be started, where the box could not even begin to."""

    async def wait(self) -> int:
        """The exit code of the command itself. Raises SandboxGone when the box ended with it."""
        await self._exited.wait()
        if self._code is None and await self._box.responds():
            # Its keeper was killed from inside, and it with it.
            self._code = KILLED
        if self._code is None:
            raise SandboxGone("the sandbox ended", backend="local", sandbox=self._box.id, phase="exec")
        return self._code

    def signal(self, number: int) -> None:
        """Send a signal to the command itself. Does nothing after its exit."""
        if not self._exited.is_set():
            with suppress(OSError):
                self._leash.post({"signal": number})

    async def kill(self) -> None:
        """End the whole tree and return when it is gone.

        Root inside can stop the process that holds the tree together. When that does not answer, everything in the
        box is killed. Raises SandboxError when even that has no effect.
        """
        if self._over.is_set():
            return
        with suppress(OSError):
            self._leash.post({"kill": True})
        if await self._ends_within(KILL_TIMEOUT):
            return
        await self._box.kill()
        if not await self._ends_within(KILL_TIMEOUT):
            self._end()
            raise SandboxError("a killed command is still there", backend="local", sandbox=self._box.id, phase="kill")

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return False
        return True

    def release(self, pipes: Sequence[int]) -> None:
        """Let what the command started live on; what it writes to `pipes` is read and forgotten."""
        if not self._over.is_set():
            with suppress(OSError):
                self._leash.post({"release": True}, pipes)
            self._end()

    def _read(self) -> None:
        try:
            message, descriptors = self._leash.take()
        except BlockingIOError:
            return
        wire.close_all(descriptors)
        if message is None:
            self._end()
        elif "exit" in message:
            self._code = int(message["exit"])
            self._exited.set()
        else:
            self.complaint = f"cannot start a process: {message.get('error')}\n".encode(errors="replace")
            self._code = NOT_STARTED

    def _end(self) -> None:
        if self._over.is_set():
            return
        self._loop.remove_reader(self._leash.fileno())
        self._leash.close()
        self._exited.set()
        self._over.set()
        self._box.forget(self)


def pipe_in() -> tuple[int, int]:
    """Ours and theirs, of a pipe that they read."""
    read, write = os.pipe2(os.O_CLOEXEC)
    return write, read


def pipe_out() -> tuple[int, int]:
    """Ours and theirs, of a pipe that they write."""
    return os.pipe2(os.O_CLOEXEC)


async def run(
    box: Host, request: ExecRequest, *, stdin: bytes | None, timeout: float | None, output_limit: int
) -> ExecResult:
    """Run a command to its end; see `Sandbox.exec`."""
    begun = time.monotonic()
    feed, given = pipe_in()
    (printed, out), (complained, err) = pipe_out(), pipe_out()
    stdout, stderr = Collector(printed, output_limit), Collector(complained, output_limit)
    feeder = Feeder(feed, stdin or b"")
    try:
        try:
            command = await box.launch(request, [given, out, err])
        finally:
            wire.close_all([given, out, err])
        timed_out = await _await_end(command, timeout)
        held = [pipe for pipe in (stdout.settle(), stderr.settle()) if pipe is not None]
        command.release(held)
        return ExecResult(
            await command.wait(),
            stdout.output.kept,
            stderr.output.kept + command.complaint,
            timed_out=timed_out,
            dropped=stdout.output.dropped + stderr.output.dropped,
            duration=time.monotonic() - begun,
        )
    finally:
        feeder.close()
        stdout.close()
        stderr.close()


async def _await_end(command: Command, timeout: float | None) -> bool:
    """Whether the command had to be killed for its time. A cancelled one is killed too."""
    try:
        async with asyncio.timeout(timeout):
            await command.wait()
    except TimeoutError:
        await finished(command.kill())
        return True
    except asyncio.CancelledError:
        await finished(command.kill())
        raise
    return False
