"""A block of our loop around which a thread of its own holds something that belongs to that thread."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from benchflow.settle import finished

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractContextManager

TEND_EVERY = 0.05
"""Seconds between two times that what is held is seen to."""


@asynccontextmanager
async def in_own_thread(make: Callable[[], AbstractContextManager[Callable[[], None]]]) -> AsyncIterator[None]:
    """Enter and leave a blocking context manager in one and the same thread, which ends with it. What it gives is
    called now and then meanwhile.

    Raises what entering raises. Cancelled while it enters, it is left again before this returns.
    """
    entered: Future[None] = Future()
    left: Future[None] = Future()
    leave = threading.Event()

    def work() -> None:
        try:
            with make() as tend:
                entered.set_result(None)
                while not leave.wait(TEND_EVERY):
                    tend()
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            (left if entered.done() else entered).set_exception(error)
        if not left.done():
            left.set_result(None)

    threading.Thread(target=work, name="benchflow-hold", daemon=True).start()
    try:
        await finished(asyncio.wrap_future(entered))
        yield
    finally:
        leave.set()
        await finished(asyncio.wrap_future(left))
