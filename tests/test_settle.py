"""Work that comes to its end although whoever asked for it was cancelled."""

from __future__ import annotations

import asyncio

import pytest

from benchflow.settle import finished, finished_or_undone


async def cancelled_twice(task: asyncio.Task[str]) -> None:
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_it_outlives_cancellations() -> None:
    done = []

    async def work() -> str:
        await asyncio.sleep(0.05)
        done.append(1)
        return "made"

    assert await finished(work()) == "made"
    await cancelled_twice(asyncio.create_task(finished(work())))
    assert done == [1, 1]


async def test_what_it_raises_is_raised_to_whoever_waits() -> None:
    async def work() -> str:
        await asyncio.sleep(0.01)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await finished(work())
    await cancelled_twice(asyncio.create_task(finished(work())))


async def test_what_was_made_for_nobody_is_undone() -> None:
    made, undone = [], []

    async def work() -> str:
        await asyncio.sleep(0.01)
        made.append("one")
        return "one"

    async def undo(one: str) -> None:
        undone.append(one)

    assert await finished_or_undone(work(), undo) == "one"
    await cancelled_twice(asyncio.create_task(finished_or_undone(work(), undo)))
    assert (made, undone) == (["one", "one"], ["one"])
