"""Networks of boxes, kept for the next box when nobody used them: to start the way out costs more than a box.

A network is as good as new when everything that a box could find in it is, to the letter, what it was before any box
ran a command there: what the kernel counted, of packets and of attempts at them, the number of sockets, and the labels
of flows, which outlive theirs. No process of the former box is left then, and none inside may change addresses,
routes or settings, so there is nothing else that one box could leave to another. A packet that a kernel sends by
itself cannot be told from one that root inside made up, so it counts as well; the settings of these networks
(`guest.root`) have it sent before the first command, or not at all. A network that was used ends with its box.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from benchflow.errors import SandboxError
from benchflow.sandbox.local.guest import processes, wire
from benchflow.settle import finished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchflow.sandbox.local.channel import Channel
    from benchflow.sandbox.local.helper import Helper

MAX_IDLE = 64
"""Networks that are kept for boxes to come."""

NO_WAY_OUT: tuple[str, ...] = ()
"""The program of a network that has loopback only."""

_TEXT_SIZE = 1 << 16


class BoxNetwork:
    """A network namespace and the program that gives it a way out, if it has one. Owns its descriptors: the namespace,
    then the texts in which a box would find what another left there."""

    def __init__(self, descriptors: Sequence[int], program: tuple[str, ...]) -> None:
        self.program = program
        self._descriptors = list(descriptors)
        self._escort: Channel | None = None
        self._pids: list[int] = []
        self._as_made: list[bytes] | None = None

    @property
    def namespace(self) -> int:
        return self._descriptors[0]

    async def connect(self, helper: Helper) -> None:
        """Start the program, if it has one, and return when the network is there. Raises SandboxError."""
        if self.program:
            self._escort = await helper.ask("network", {"argv": list(self.program)}, [self.namespace])
            answer, _ = await self._escort.receive()
            if answer is None or "error" in answer:
                raise SandboxError(
                    f"no network: {answer['error'] if answer else f'{self.program[0]} was killed'}",
                    backend="local",
                    phase="start",
                )
            self._pids = answer["pids"]
        self._as_made = self._texts()

    def as_new(self) -> bool:
        """Whether the next box may have it: it was there, its way out still is, and nothing was left in it."""
        if self.program and (self._escort is None or self._escort.ended):
            return False
        # A frame is counted when the program reads it, and the program does not wait while there is one.
        if not all(processes.asleep(pid) for pid in self._pids):
            return False
        return self._as_made is not None and self._texts() == self._as_made

    def _texts(self) -> list[bytes]:
        return [lasting(os.pread(text, _TEXT_SIZE, 0)) for text in self._descriptors[1:]]

    async def close(self) -> None:
        """End the program and let go of the namespace."""
        wire.close_all(self._descriptors)
        self._descriptors.clear()
        if self._escort is not None:
            escort, self._escort = self._escort, None
            with suppress(OSError):
                escort.shut()
            while (await escort.receive())[0] is not None:
                pass
            escort.close()


def lasting(text: bytes) -> bytes:
    """What is of this network alone. In a sockstat that is the number of its sockets; the rest is the machine's."""
    return text.partition(b"\n")[0] if text.startswith(b"sockets:") else text


class NetworkPool:
    def __init__(self) -> None:
        self._idle: list[BoxNetwork] = []

    async def take(self, program: tuple[str, ...]) -> BoxNetwork | None:
        """One that is as good as new, if there is any. It belongs to the caller."""
        while network := next((kept for kept in self._idle if kept.program == program), None):
            self._idle.remove(network)
            # Once more: the kernel may have had something to say when its last user was gone.
            if network.as_new():
                return network
            await finished(network.close())
        return None

    async def give_back(self, network: BoxNetwork) -> None:
        """Take over a network whose box is gone."""
        if len(self._idle) < MAX_IDLE and network.as_new():
            self._idle.append(network)
        else:
            await network.close()

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()
