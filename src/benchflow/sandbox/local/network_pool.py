"""Networks of boxes, kept for the next box when nobody used them: to start the way out costs more than a box.

A network is as good as new when no packet left any of its sockets, that of its loopback included. The kernel counts
them; what it sends by itself to find its neighbours is known by its type. No process of the former box is left then,
and none inside may change addresses, routes or settings, so there is nothing else that one box could leave to
another. A network that was used ends with its box.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from benchflow.errors import SandboxError
from benchflow.sandbox.local.guest import wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchflow.sandbox.local.channel import Channel
    from benchflow.sandbox.local.helper import Helper

MAX_IDLE = 64
"""Networks that are kept for boxes to come."""

NO_WAY_OUT: tuple[str, ...] = ()
"""The program of a network that has loopback only."""

KERNELS_OWN = (133, 135, 136, 143)
"""Types of ICMPv6 that a kernel sends unasked: to find routers and neighbours, and to name its groups."""

_COUNTERS_SIZE = 1 << 16


class BoxNetwork:
    """A network namespace and the program that gives it a way out, if it has one. Owns its descriptors: the namespace,
    then its counters of devices, of IPv4 and of IPv6 (which may be missing)."""

    def __init__(self, descriptors: Sequence[int], program: tuple[str, ...]) -> None:
        self.program = program
        self._descriptors = list(descriptors)
        self._escort: Channel | None = None
        self._as_new: list[bytes] = []

    @property
    def namespace(self) -> int:
        return self._descriptors[0]

    async def connect(self, helper: Helper) -> None:
        """Start the program, if it has one, and return when the network is there. Raises SandboxError."""
        if not self.program:
            return
        self._escort = await helper.ask("network", {"argv": list(self.program)}, [self.namespace])
        answer, _ = await self._escort.receive()
        if answer is None or "error" in answer:
            raise SandboxError(
                f"no network: {answer['error'] if answer else f'{self.program[0]} was killed'}",
                backend="local",
                phase="start",
            )

    def as_new(self) -> bool:
        """Whether the next box may have it: nothing was sent, and its way out is still there."""
        if self.program and (self._escort is None or self._escort.ended):
            return False
        now = [os.pread(counters, _COUNTERS_SIZE, 0) for counters in self._descriptors[1:]]
        if now != self._as_new and not unused(*(text.decode("ascii") for text in now)):
            return False
        self._as_new = now
        return True

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


def unused(devices: str, ip4: str, ip6: str = "") -> bool:
    """Whether a namespace with these /proc/net/dev, snmp and snmp6 sent nothing but what its kernel sends unasked."""
    sent = sum(int(line.rpartition(":")[2].split()[9]) for line in devices.splitlines()[2:])
    titles, values = (line.split() for line in ip4.splitlines()[:2])
    requests = dict(zip(titles, values, strict=True))["OutRequests"]
    counts = {name: int(value) for name, value in (line.split() for line in ip6.splitlines())}
    own = sum(counts.get(f"Icmp6OutType{kind}", 0) for kind in KERNELS_OWN)
    return requests == "0" and counts.get("Ip6OutRequests", 0) == own and sent <= own


class NetworkPool:
    def __init__(self) -> None:
        self._idle: list[BoxNetwork] = []

    async def take(self, program: tuple[str, ...]) -> BoxNetwork | None:
        """One that is as good as new, if there is any. It belongs to the caller."""
        for network in [kept for kept in self._idle if kept.program == program]:
            self._idle.remove(network)
            # Once more: what was sent last may not have been counted when it came back.
            if network.as_new():
                return network
            await network.close()
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
