"""Work that many tasks of this process want at once, and that is done once.

Whoever joins late still gets the lines that were logged before. The work is given up only when nobody waits for it
any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from benchflow.settle import finished

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LOG_LINES = 10_000
"""Lines of a build that are kept for those who join later."""

type Log = Callable[[str], None]


class Flight:
    """One piece of shared work: what it said so far, and who listens."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=LOG_LINES)
        self.listeners: list[Log] = []
        self.waiting = 0
        self.task: asyncio.Task[None]

    def say(self, line: str) -> None:
        self.lines.append(line)
        for listener in self.listeners:
            listener(line)


class Flights:
    """The pieces of work under way in this process, by key."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}

    async def join(self, key: str, work: Callable[[Log], Awaitable[None]], log: Log | None) -> None:
        """Do `work` or wait for whoever does it. Raises what it raises."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = Flight()
            flight.task = asyncio.create_task(self._fly(key, flight, work))
        if log is not None:
            for line in flight.lines:
                log(line)
            flight.listeners.append(log)
        flight.waiting += 1
        try:
            await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if log is not None:
                flight.listeners.remove(log)
            if not flight.waiting and not flight.task.done():
                flight.task.cancel()
                await finished(asyncio.gather(flight.task, return_exceptions=True))

    async def _fly(self, key: str, flight: Flight, work: Callable[[Log], Awaitable[None]]) -> None:
        try:
            await work(flight.say)
        finally:
            del self._flights[key]
