"""Work that must come to its end although whoever asked for it was cancelled: creating, killing, removing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine


async def finished[T](work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    """Await `work` to its end. When the caller is cancelled meanwhile, that is raised only after the end."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            # What it raised is of no use to a caller that has gone, but must not be reported as never retrieved.
            task.exception()
        raise cancelled
    return task.result()


async def finished_or_undone[T](work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[object]]) -> T:
    """As `finished`; when the caller was cancelled, what the work made is undone first."""
    task = asyncio.ensure_future(work)
    try:
        return await finished(task)
    except asyncio.CancelledError:
        if not task.cancelled() and task.exception() is None:
            await undo(task.result())
        raise
