"""Cancel a coroutine at a chosen point: the n-th time it waits for something."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator


class Interrupted:
    """Awaiting this runs `work` and cancels the running task the `point`-th time that `work` waits (0: never).

    `waits` counts how often it waited.
    """

    def __init__(self, work: Coroutine[Any, Any, None], point: int = 0) -> None:
        self._work = work
        self._point = point
        self.waits = 0

    def __await__(self) -> Generator[Any, Any, None]:
        waiting = self._work.__await__()
        step: Callable[[], Any] = partial(next, waiting)
        while True:
            try:
                future = step()
            except StopIteration:
                return
            self.waits += 1
            if self.waits == self._point:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield future
                step = partial(next, waiting)
            except BaseException as error:  # noqa: BLE001 - handed on to the coroutine, whatever it is
                step = partial(waiting.throw, error)


async def count_waits(work: Coroutine[Any, Any, None]) -> int:
    """How often `work` waits when nobody disturbs it."""
    counted = Interrupted(work)
    await counted
    return counted.waits


async def run_interrupted(work: Coroutine[Any, Any, None], point: int) -> None:
    """Run `work` as a task of its own and cancel it at its `point`-th wait; returns when it has ended."""

    async def run() -> None:
        await Interrupted(work, point)

    task = asyncio.create_task(run())
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()


def spread(total: int, count: int) -> list[int]:
    """At most `count` points of 1..total, evenly spread, the first and the last among them."""
    if total <= count:
        return list(range(1, total + 1))
    return sorted({1 + round(step * (total - 1) / (count - 1)) for step in range(count)})
