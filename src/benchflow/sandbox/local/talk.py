"""Requests to the first process of a box, and what can become of them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from benchflow.errors import SandboxError, SandboxGone
from benchflow.sandbox.local.guest import wire
from benchflow.settle import finished

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from benchflow.sandbox.local.channel import Channel

GIVE_UP_TIMEOUT = 20.0
"""Seconds that a request which is given up may take to stop what it does."""


class Refused(SandboxError):
    """A request failed inside the box. `number` is its errno, 0 when it has none."""

    retryable = False

    def __init__(self, text: str, number: int, *, sandbox: str, phase: str) -> None:
        super().__init__(text, backend="local", sandbox=sandbox, phase=phase)
        self.number = number


class Gate:
    """Lets any number of requests pass together, or holds them all back while the box's root is exchanged."""

    def __init__(self) -> None:
        self.passing = 0
        self._open = asyncio.Event()
        self._open.set()
        self._turn = asyncio.Lock()

    async def enter(self) -> None:
        while not self._open.is_set():
            await self._open.wait()
        self.passing += 1

    def leave(self) -> None:
        self.passing -= 1

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Nothing new passes within. What passed before may still be under way: see `passing`."""
        async with self._turn:
            self._open.clear()
            try:
                yield
            finally:
                self._open.set()


class Talk:
    """One request and its replies."""

    def __init__(self, reply: Channel, control: Control, phase: str) -> None:
        self._reply = reply
        self._control = control
        self._phase = phase

    async def answer(self) -> tuple[wire.Message, list[int]]:
        """The next reply and its descriptors. Raises Refused, SandboxGone."""
        answer, descriptors = await self._reply.receive()
        if answer is not None and "error" not in answer:
            return answer, descriptors
        wire.close_all(descriptors)
        if answer is None:
            raise await self._control.silence(self._phase)
        raise self._control.refusal(answer, self._phase)

    async def say(self, message: Mapping[str, object], descriptors: Sequence[int]) -> None:
        try:
            await self._reply.send(message, descriptors)
        except OSError as error:
            raise await self._control.silence(self._phase) from error

    async def end(self) -> None:
        """Make the far end give up if it is still at work, and wait until it has."""
        try:
            with suppress(OSError):
                self._reply.shut()
            async with asyncio.timeout(GIVE_UP_TIMEOUT):
                while True:
                    message, descriptors = await self._reply.receive()
                    wire.close_all(descriptors)
                    if message is None:
                        return
        except TimeoutError:
            why = f"it does not stop within {GIVE_UP_TIMEOUT:g} s"
            raise self._control.refusal({"error": why, "errno": 0}, self._phase) from None
        finally:
            self._reply.close()


class Control:
    """The way to a box's first process. `channel` belongs to this object."""

    def __init__(self, channel: Channel, box: str) -> None:
        self._channel = channel
        self._box = box
        self.gate = Gate()

    @property
    def ended(self) -> bool:
        """Whether the first process is known to be gone, and all others with it."""
        return self._channel.ended

    async def responds(self) -> bool:
        """Whether the first process lives. Of one that is ending, other sockets may close before this one does."""
        try:
            reply = await self._channel.ask({"op": "ping"})
        except OSError:
            return False
        try:
            answer, _ = await reply.receive()
        finally:
            reply.close()
        return answer is not None

    def refusal(self, answer: wire.Message, phase: str) -> SandboxError:
        """The error for a reply that is one."""
        return Refused(str(answer["error"]), int(answer["errno"]), sandbox=self._box, phase=phase)

    def gone(self, phase: str) -> SandboxGone:
        return SandboxGone("the sandbox ended", backend="local", sandbox=self._box, phase=phase)

    async def silence(self, phase: str) -> SandboxError:
        """The error for a reply that did not come."""
        if await self.responds():
            return Refused("it was killed from inside", 0, sandbox=self._box, phase=phase)
        return self.gone(phase)

    async def ask(self, op: str, message: Mapping[str, object], descriptors: Sequence[int] = ()) -> Channel:
        """Send a request that has passed the gate; returns the channel of its replies. Raises SandboxGone."""
        try:
            return await self._channel.ask({"op": op, **message}, descriptors)
        except OSError as error:
            raise self.gone(op) from error

    @asynccontextmanager
    async def talk(
        self, op: str, message: Mapping[str, object], descriptors: Sequence[int] = ()
    ) -> AsyncIterator[Talk]:
        """A request through the gate. Leaving early makes the far end give up."""
        await self.gate.enter()
        try:
            talk = Talk(await self.ask(op, message, descriptors), self, op)
            try:
                yield talk
            finally:
                await finished(talk.end())
        finally:
            self.gate.leave()

    async def call(
        self, op: str, message: Mapping[str, object], descriptors: Sequence[int] = ()
    ) -> tuple[wire.Message, list[int]]:
        """A request through the gate that has one reply, and its descriptors, which belong to the caller then."""
        received: list[int] = []
        try:
            async with self.talk(op, message, descriptors) as talk:
                answer, received = await talk.answer()
        except BaseException:
            wire.close_all(received)
            raise
        return answer, received

    async def bypass(self, op: str) -> None:
        """A request with one reply, past the gate that the caller holds."""
        talk = Talk(await self.ask(op, {}), self, op)
        try:
            await talk.answer()
        finally:
            await finished(talk.end())

    def close(self) -> None:
        self._channel.close()
