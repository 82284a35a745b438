"""Runs many rollouts, a limited number at a time. It knows nothing of tasks: it is given how to play and how to judge.

The loop admits what is ready while there is room, and otherwise waits until something changes. A rollout that waits
for another try holds no place, and one whose provider has no room holds up only those that ask the same model.
Admission ends early when the job is drained (what runs is finished) or when a verdict halts it; cancelling ends
everything, each rollout cleaning up after itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from benchflow.job.lock import Key
    from benchflow.job.retry import Halt
    from benchflow.job.row import Row

LOOK_AGAIN = 5.0
"""Seconds after which the gate is asked again when there was no room. The host has no event for free memory."""


@dataclass(frozen=True, slots=True)
class Work:
    """A rollout that is to be done. `tried` counts from 1 over the life of the job, `retries` from 0 in this run."""

    key: Key
    model: str | None = None
    memory_mb: int | None = None
    tried: int = 1
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from a result: wait and try again, halt, or neither."""

    wait: float | None = None
    halt: Halt | None = None


class Gate(Protocol):
    """Says whether there is room, and whether anything speaks against a rollout. See `gate.Gate`."""

    def admit(self, work: Work, running: Collection[Work]) -> bool: ...

    def crowded(self, work: Work, running: Collection[Work]) -> bool: ...

    def problem(self, work: Work) -> Halt | None: ...


class Scheduler:
    """One run over a list of work, in its order. `play` must not raise but for cancellation.

    `halts` are the causes for which work was not started, `unfinished` says whether draining left any undone.
    """

    def __init__(
        self,
        work: Iterable[Work],
        play: Callable[[Work], Awaitable[Row]],
        judge: Callable[[Work, Row], Awaitable[Verdict]],
        *,
        concurrency: int,
        gate: Gate,
        on_halt: Callable[[Halt], None] = lambda _: None,
    ) -> None:
        self._ready = deque(work)
        self._play = play
        self._judge = judge
        self._concurrency = concurrency
        self._gate = gate
        self._on_halt = on_halt
        self._running: list[Work] = []
        self._waiting: dict[Work, asyncio.TimerHandle] = {}
        self._changed = asyncio.Event()
        self.halts: list[Halt] = []
        self.drained = False
        self.unfinished = False

    @property
    def running(self) -> int:
        return len(self._running)

    async def run(self) -> None:
        """Do the work. Returns when nothing runs and nothing more will be started."""
        try:
            async with asyncio.TaskGroup() as group:
                while self._admit(group) or self._running or self._waiting:
                    await self._change(LOOK_AGAIN if self._ready and self._has_place else None)
        finally:
            self._forget(list(self._waiting))

    def drain(self) -> None:
        """Start nothing more; what runs is finished."""
        self.drained = True
        self.unfinished |= bool(self._ready or self._waiting)
        self._ready.clear()
        self._forget(list(self._waiting))
        self._changed.set()

    def halt(self, halt: Halt) -> None:
        """Start nothing more that would meet the same cause. The first such cause is kept."""
        if any(known.model in (None, halt.model) for known in self.halts):
            return
        self.halts.append(halt)
        self._ready = deque(work for work in self._ready if not _meets(work, halt))
        self._forget([work for work in self._waiting if _meets(work, halt)])
        self._changed.set()
        self._on_halt(halt)

    def look(self) -> None:
        """Ask the gate again: something has changed."""
        self._changed.set()

    def _admit(self, group: asyncio.TaskGroup) -> bool:
        """Start what there is room for; whether anything is still to be started."""
        full: set[str | None] = set()
        while work := next((one for one in self._ready if one.model not in full), None):
            if halt := self._gate.problem(work):
                self.halt(halt)
            elif not self._has_place:
                break
            elif self._gate.crowded(work, self._running):
                full.add(work.model)
            elif not self._gate.admit(work, self._running):
                break
            else:
                self._ready.remove(work)
                self._running.append(work)
                group.create_task(self._one(work))
        return bool(self._ready)

    @property
    def _has_place(self) -> bool:
        return len(self._running) < self._concurrency

    async def _one(self, work: Work) -> None:
        try:
            row = await self._play(work)
            verdict = await self._judge(work, row)
        finally:
            self._running.remove(work)
            self._changed.set()
        if verdict.halt:
            self.halt(verdict.halt)
        elif verdict.wait is not None and self._refused(work):
            self.unfinished |= self.drained
        elif verdict.wait is not None:
            again = replace(work, tried=work.tried + 1, retries=work.retries + 1)
            loop = asyncio.get_running_loop()
            self._waiting[again] = loop.call_later(verdict.wait, self._wake, again)

    def _refused(self, work: Work) -> bool:
        return self.drained or any(_meets(work, halt) for halt in self.halts)

    def _wake(self, work: Work) -> None:
        del self._waiting[work]
        self._ready.append(work)
        self._changed.set()

    def _forget(self, work: Iterable[Work]) -> None:
        for one in work:
            self._waiting.pop(one).cancel()

    async def _change(self, at_most: float | None) -> None:
        try:
            async with asyncio.timeout(at_most):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()


def _meets(work: Work, halt: Halt) -> bool:
    return halt.model is None or work.model == halt.model
