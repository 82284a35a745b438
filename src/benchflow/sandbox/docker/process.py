"""One command in a container: started through the engine's exec call, talked to over a hijacked connection.

Every command runs under the container's init, which adopts orphans while the command lives, and with a mark in its
environment; together they make it possible to kill everything a command started. How it ended is the engine's word
(`inspect`), asked when the stream ends or, because a background child may keep that open, when the process itself is
seen to end. A command that cannot be started is no error of the sandbox: it has an exit code and a reason on stderr.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from benchflow.errors import SandboxError, SandboxGone
from benchflow.sandbox.docker import wire
from benchflow.sandbox.docker.inside import process_end
from benchflow.sandbox.docker.outcome import Look, exit_code
from benchflow.sandbox.docker.sockets import BACKEND
from benchflow.settle import finished

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from benchflow.sandbox.docker.place import Place

FIRST_LOOK = 0.2
"""Seconds that a command runs before it is first asked whether it has ended with its output still open."""

LOOK_AGAIN = 0.02
LOOK_SELDOM = 1.0
"""Seconds between two such questions, at first and at most, where the end of a process cannot be awaited."""

STALL = 0.5
"""Seconds that input is not taken before it is asked whether anybody still reads it."""

KILL_TIMEOUT = 30.0
"""Seconds that a killed command may take to be reported as ended."""

_START_FAILED = (b"OCI runtime exec failed", b"unable to find user", b"unable to find group", b"no matching entries")


class Process:
    """A started command; see `benchflow.sandbox.base.Stream`."""

    def __init__(
        self, place: Place, connection: wire.Wire | None, *, exec_id: str = "", mark: str = "", user: str = ""
    ) -> None:
        self.on_release: Callable[[Process], None] | None = None
        self._place = place
        self._exec_id = exec_id
        self._mark = mark
        self._user = user
        self._wire = connection
        self._outputs = {wire.STDOUT: wire.Output(), wire.STDERR: wire.Output()}
        self._held = b""
        self._refused = False
        self._stderr_head = b""
        self._input_closed = False
        self._killed = False
        self._code: int | None = None
        self._pid = 0
        self._ended = asyncio.Event()
        self._asking = asyncio.Lock()
        self._sending = asyncio.Lock()
        self._killing = asyncio.Lock()
        self._pump = asyncio.create_task(self._receive()) if connection else None

    @classmethod
    def failed(cls, place: Place, reason: str) -> Self:
        """A command that could not be started."""
        process = cls(place, None)
        process._outputs[wire.STDERR].reader.feed_data(reason.encode() + b"\n")
        process._end_outputs()
        process._code = 126
        return process

    @property
    def stdout(self) -> asyncio.StreamReader:
        return self._outputs[wire.STDOUT].reader

    @property
    def stderr(self) -> asyncio.StreamReader:
        return self._outputs[wire.STDERR].reader

    # -- input ---------------------------------------------------------------------------------------------

    async def write(self, data: bytes) -> None:
        async with self._sending:
            if self._input_closed or self._wire is None or self._over():
                raise BrokenPipeError("the process has ended or its input was closed")
            sent = self._wire.send_now(data)
            if sent < len(data):
                await self._send_rest(self._wire, memoryview(data)[sent:])

    async def _send_rest(self, connection: wire.Wire, data: memoryview) -> None:
        sending = asyncio.create_task(connection.send(data))
        ending = asyncio.create_task(self._ended.wait())
        pause = STALL
        try:
            while True:
                done, _ = await asyncio.wait({sending, ending}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                if sending in done:
                    return sending.result()
                if ending in done or self._over() or await self._input_abandoned():
                    raise BrokenPipeError("the process has ended or closed its input")
                pause = min(2 * pause, 10 * STALL)
        finally:
            await _cancelled(sending, ending)

    async def _input_abandoned(self) -> bool:
        if not self._pid:
            self._pid = (await self._look()).pid
        async with self._place.guard("write"):
            return bool(self._pid) and await self._place.inside.input_abandoned(self._pid, self._mark, self._user)

    async def close_stdin(self) -> None:
        async with self._sending:
            if not self._input_closed and self._wire is not None and not self._over():
                self._wire.half_close()
            self._input_closed = True

    def _over(self) -> bool:
        return self._code is not None or self._ended.is_set()

    # -- output --------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        assert self._wire is not None
        demux = wire.Demux()
        try:
            while data := await self._wire.receive():
                for kind, piece in demux.feed(data):
                    await self._deliver(kind, piece)
            if self._held:
                self._refused = await self._never_started()
                kind = wire.STDERR if self._refused else wire.STDOUT
                held, self._held = self._held, b""
                await self._outputs[kind].feed(held)
        finally:
            self._end_outputs()

    async def _deliver(self, kind: int, piece: bytes) -> None:
        # Docker says on stdout why it could not start a command: kept back until it is known to be that.
        first = not self._stderr_head and not self._held and not self._outputs[wire.STDOUT].used
        if first and kind == wire.STDOUT and piece.startswith(_START_FAILED):
            self._held = piece
            return
        if self._held:
            held, self._held = self._held, b""
            await self._outputs[wire.STDOUT].feed(held)
        if kind == wire.STDERR and len(self._stderr_head) < 512:
            self._stderr_head += piece[:512]
        await self._outputs[kind].feed(piece)

    async def _never_started(self) -> bool:
        with suppress(SandboxError):
            look = await self._look()
            return look.ended and look.pid == 0 and not self._place.engine.podman
        return False

    def _end_outputs(self) -> None:
        for output in self._outputs.values():
            output.end()
        self._ended.set()

    # -- the end -------------------------------------------------------------------------------------------

    async def wait(self) -> int:
        if self._code is None:
            async with self._asking:
                if self._code is None:
                    self._code = await self._watch()
        return self._code

    async def _watch(self) -> int:
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK):
                await self._ended.wait()
        pause = LOOK_AGAIN
        while not (look := await self._look()).ended:
            self._pid = look.pid
            await self._pause(pause)
            pause = min(2 * pause, LOOK_SELDOM)
        if self._held:
            await self._ended.wait()
        code = exit_code(
            look,
            self._place.init,
            podman=self._place.engine.podman,
            refused=self._refused,
            stderr=self._stderr_head,
        )
        # What a killed command and one that could not be started may have in common: a container that is gone.
        if code in {126, 137} and not self._killed:
            async with self._place.guard("wait"):
                lives = await self._place.inside.lives()
            if not lives:
                raise self._place.vanished("wait")
        if self._place.gone():
            raise self._place.vanished("wait")
        return code

    async def _pause(self, seconds: float) -> None:
        """Until it is worth asking again: the stream or the process has ended, or as long as told."""
        waits: list[asyncio.Task[object]] = []
        if not self._ended.is_set():
            waits.append(asyncio.create_task(self._ended.wait()))
        if self._pid and self._place.inside.near is not None:
            waits.append(asyncio.create_task(process_end(self._pid)))
        try:
            if waits:
                done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    return
            # What has ended for us may take the engine a moment to notice.
            await asyncio.sleep(min(seconds, LOOK_AGAIN) if waits else seconds)
        finally:
            await _cancelled(*waits)

    async def _look(self) -> Look:
        place = self._place
        async with place.guard("wait"):
            found = await place.engine.inspect_exec(self._exec_id)
        if found is None:
            raise place.vanished("wait")
        running, code, pid = bool(found["Running"]), found["ExitCode"], int(found.get("Pid") or 0)
        ended = bool(found["CanRemove"]) if place.engine.podman else code is not None
        return Look(running, ended and not running, int(code or 0), pid)

    async def signal(self, number: int) -> None:
        if self._code is not None:
            return
        # The engine may learn the number of a process after we have heard its first words.
        while not (look := await self._look()).ended and not look.pid:  # noqa: ASYNC110  there is no event of it
            await asyncio.sleep(LOOK_AGAIN)
        if look.ended:
            return
        self._killed = self._killed or number == signal.SIGKILL
        place = self._place
        async with place.guard("signal"):
            await place.inside.signal(number, look.pid, self._mark, self._user, adopted=bool(place.init.kind))

    async def kill(self) -> None:
        await finished(self._kill())

    async def _kill(self) -> None:
        async with self._killing:
            if self._wire is None:
                return
            # Podman does not say that a process has ended before its output was taken.
            for output in self._outputs.values():
                output.discard()
            try:
                async with asyncio.timeout(KILL_TIMEOUT):
                    await self.kill_tree()
                    await self.wait()
            except SandboxGone:
                pass
            except TimeoutError:
                text = f"a killed command had not ended after {KILL_TIMEOUT:g} s"
                raise SandboxError(text, backend=BACKEND, sandbox=self._place.sandbox, phase="kill") from None
            finally:
                await self.release()

    async def kill_tree(self) -> None:
        """Kill the command and everything it started; the streams stay, to be read to their end."""
        self._killed = True
        pause = LOOK_AGAIN
        while self._code is None and not (look := await self._look()).ended:
            # One that was started a moment ago may not bear its mark yet: again, until the engine says it has ended.
            if look.pid:
                await self._kill_marked()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LOOK_SELDOM)
        await self._kill_marked()

    async def _kill_marked(self) -> None:
        async with self._place.guard("kill"):
            await self._place.inside.kill_marked(self._mark, self._user)

    async def release(self) -> None:
        """Let go of the connection, leaving the process to itself. Idempotent."""
        await finished(self._release())

    async def _release(self) -> None:
        if self._pump is not None:
            await _cancelled(self._pump)
        connection, self._wire = self._wire, None
        if connection is not None:
            # A sender notices the end that the pump announced before the socket is taken away from under it.
            async with self._sending:
                connection.close()
        if self.on_release is not None:
            self.on_release(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()


async def _cancelled(*tasks: asyncio.Task[object]) -> None:
    """Cancel tasks and see them end."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
