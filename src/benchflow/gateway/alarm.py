"""Why no more requests are sent: said once, by whoever finds out first."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

TripKind = Literal["cost", "tokens", "unmetered", "key", "billing", "model", "replay", "ledger"]


@dataclass(frozen=True, slots=True)
class Trip:
    """A reason to stop. A `fatal` one holds for every rollout on the same account: nothing of theirs can succeed.

    Where a budget is used up, `scope` says whose it was (`rollout`, `job`) and `limit` how much it had.
    """

    kind: TripKind
    message: str
    scope: str = ""
    limit: float | None = None

    @property
    def fatal(self) -> bool:
        return self.kind in ("key", "billing", "model")


class Alarm:
    """Rings once; later reasons are not heard."""

    def __init__(self) -> None:
        self._trip: Trip | None = None
        self._rung = asyncio.Event()

    @property
    def trip(self) -> Trip | None:
        return self._trip

    def ring(self, trip: Trip) -> None:
        if self._trip is None:
            self._trip = trip
            self._rung.set()

    async def wait(self) -> Trip:
        """Wait until it rings."""
        await self._rung.wait()
        assert self._trip is not None
        return self._trip
