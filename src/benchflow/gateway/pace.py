"""How fast a provider is asked, shared by everything that uses the same account.

When the provider says that it is too much, everybody waits as long as it asks for, and then half as many requests as
before may run at the same time, with every answer that succeeds a little more.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import deque
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from benchflow.gateway.dialects.base import get, objects, text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

FIRST_WAIT = 1.0
"""Seconds to wait when the provider does not say how long; doubled each time it happens again."""

LONGEST_WAIT = 60.0
"""Seconds that such a wait grows to at most."""

GROWTH = 0.25
"""How many more requests may run for each that was answered: a full round of answers makes room for a quarter more."""

JITTER = 0.25
"""Waits are stretched by up to this part of them, so that not all come back at once."""


class Pace:
    """The gate in front of one account."""

    def __init__(self) -> None:
        self._window: float | None = None
        self._running = 0
        self._strikes = 0
        self._resume = 0.0
        self._slowed_at = 0.0
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def window(self) -> int | None:
        """How many requests may run at the same time; None while the provider never complained."""
        return None if self._window is None else max(1, int(self._window))

    @property
    def room(self) -> int | None:
        """How many may ask now: none while the provider wants to be left alone, then as many as `window` says."""
        return 0 if self._resume > asyncio.get_running_loop().time() else self.window

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One request, from when it may be sent to the end of its answer."""
        await self._enter()
        try:
            yield
        finally:
            self._running -= 1
            self._wake()

    def slow_down(self, asked: float | None, began: float) -> float:
        """The provider said that a request sent at `began` was too much, and perhaps how many seconds to wait.

        Requests that were sent before the last slowing down tell nothing new. Returns the seconds to wait.
        """
        now = asyncio.get_running_loop().time()
        if began >= self._slowed_at:
            self._window = max(1.0, (self._running if self._window is None else min(self._running, self._window)) / 2)
            self._slowed_at = now
            self._strikes += 1
        wait = asked if asked is not None else min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(self._strikes - 1, 10))
        self._resume = max(self._resume, now + wait)
        return wait

    def went_well(self) -> None:
        """A request was answered."""
        self._strikes = 0
        if self._window is not None:
            self._window += GROWTH
            self._wake()

    async def _enter(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            wait = self._resume - loop.time()
            if wait > 0:
                await asyncio.sleep(wait * random.uniform(1, 1 + JITTER))  # noqa: S311 - spreading, not hiding
            elif self._window is None or self._running < max(1, int(self._window)):
                self._running += 1
                return
            else:
                await self._queue_up(loop)

    async def _queue_up(self, loop: asyncio.AbstractEventLoop) -> None:
        place: asyncio.Future[None] = loop.create_future()
        self._queue.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._wake()
            raise

    def _wake(self) -> None:
        """Let those who queue look again, as many as there is room for."""
        room = len(self._queue) if self._window is None else max(1, int(self._window)) - self._running
        while self._queue and room > 0:
            place = self._queue.popleft()
            if not place.done():
                place.set_result(None)
                room -= 1


def asked_wait(headers: Mapping[str, str], body: bytes) -> float | None:
    """How many seconds a provider asks to wait, in a header or (Gemini) in the error itself; None when it does not."""
    if (milliseconds := _number(headers.get("retry-after-ms", ""))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    if (seconds := _number(value)) is not None:
        return seconds
    if value:
        try:
            return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
        except (ValueError, TypeError):
            return None
    try:
        details = objects(get(json.loads(body), "error", "details"))
    except (ValueError, RecursionError):
        return None
    delays = (re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)s", text(detail, "retryDelay")) for detail in details)
    return next((float(delay[1]) for delay in delays if delay), None)


def _number(value: str) -> float | None:
    return float(value) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value.strip()) else None
