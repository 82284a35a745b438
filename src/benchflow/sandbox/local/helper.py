"""The zygote as a process of ours: started once, spoken to over one socket, gone when that closes."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.errors import SandboxError, SandboxUnavailable
from benchflow.sandbox.local.channel import Channel
from benchflow.sandbox.local.guest import wire
from benchflow.sandbox.local.seccomp import CAPABILITIES, SeccompUnavailable, compiled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchflow.sandbox.local.identity import Identity

BACKEND = "local"

START_TIMEOUT = 30.0
"""Seconds that the helper process may take to become ready."""

END_TIMEOUT = 10.0
"""Seconds that the helper process may take to end by itself before it is killed."""

_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from guest.zygote import main; main(*sys.argv[1:])"


class Helper:
    """A running zygote. Make one with `start`."""

    def __init__(self, process: asyncio.subprocess.Process, control: Channel) -> None:
        self._process = process
        self._control = control

    @classmethod
    async def start(cls, identity: Identity) -> Helper:
        """Raises SandboxUnavailable when this machine does not allow it."""
        try:
            program = await asyncio.to_thread(compiled)
        except SeccompUnavailable as error:
            raise SandboxUnavailable(
                f"no seccomp filter can be made: {error}", backend=BACKEND, hint="apt-get install libseccomp2"
            ) from error
        control, far = Channel.pair()
        try:
            process = await _spawn(far.fileno(), identity)
        except BaseException:
            control.close()
            raise
        finally:
            far.close()
        helper = cls(process, control)
        try:
            async with asyncio.timeout(START_TIMEOUT):
                await helper._greet(identity, program)
        except BaseException:
            await helper.close()
            raise
        return helper

    @property
    def alive(self) -> bool:
        return not self._control.ended

    async def ask(self, op: str, message: Mapping[str, object], descriptors: Sequence[int] = ()) -> Channel:
        """Send a request and return the channel of its replies. Raises SandboxError when the helper is gone."""
        try:
            return await self._control.ask({"op": op, **message}, descriptors)
        except OSError as error:
            raise SandboxError("the helper process ended", backend=BACKEND, phase=op) from error

    async def call(
        self, op: str, message: Mapping[str, object], descriptors: Sequence[int] = ()
    ) -> tuple[wire.Message, list[int]]:
        """Send a request and await its last reply. Raises SandboxError when it fails."""
        reply = await self.ask(op, message, descriptors)
        try:
            answer, received = await reply.receive()
        finally:
            reply.close()
        if answer is None or "error" in answer:
            wire.close_all(received)
            raise SandboxError(answer["error"] if answer else "the helper process ended", backend=BACKEND, phase=op)
        return answer, received

    async def close(self) -> None:
        self._control.close()
        try:
            async with asyncio.timeout(END_TIMEOUT):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def _greet(self, identity: Identity, program: bytes) -> None:
        if identity.kind == "ranges":
            await self._expect("unshared")
            try:
                await identity.map(self._process.pid)
            except OSError as error:
                raise _refused(str(error)) from error
            await self._control.send({"mapped": True})
        body = wire.memory_file(program)
        try:
            hello = {"capabilities": CAPABILITIES, "any_user": identity.kind != "single"}
            await self._control.send(hello, [body])
        finally:
            os.close(body)
        await self._expect("ok")

    async def _expect(self, key: str) -> None:
        answer, _ = await self._control.receive()
        if answer is None or key not in answer:
            raise _refused(str(answer["error"]) if answer and "error" in answer else "it ended at once")


def _refused(why: str) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"the helper process could not start: {why}",
        backend=BACKEND,
        phase="start",
        hint="bench doctor says what is missing",
    )


async def _spawn(descriptor: int, identity: Identity) -> asyncio.subprocess.Process:
    """A bare interpreter: no environment, no site packages, no descriptor but the socket."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *(
            "-I",
            "-S",
            "-E",
            "-c",
            _PROGRAM,
            str(Path(__file__).parent),
            str(descriptor),
            str(os.getpid()),
            identity.kind,
        ),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
        cwd="/",
        pass_fds=(descriptor,),
        start_new_session=True,
    )
