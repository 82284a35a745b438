"""Shared work: done once, logged to all, given up only when nobody waits."""

from __future__ import annotations

import asyncio

import pytest

from benchflow.sandbox.docker.flight import Flights, Log


async def test_work_is_done_once_and_everybody_hears_all_of_it() -> None:
    flights, runs, go = Flights(), 0, asyncio.Event()

    async def work(say: Log) -> None:
        nonlocal runs
        runs += 1
        say("begun")
        await go.wait()
        say("done")

    heard: list[list[str]] = [[] for _ in range(5)]
    tasks = []
    for lines in heard:
        tasks.append(asyncio.create_task(flights.join("key", work, lines.append)))
        await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*tasks)
    assert runs == 1
    assert heard == [["begun", "done"]] * 5
    await flights.join("key", work, None)
    assert runs == 2


async def test_an_error_reaches_everybody() -> None:
    flights = Flights()

    async def work(say: Log) -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    results = await asyncio.gather(*(flights.join("key", work, None) for _ in range(3)), return_exceptions=True)
    assert [str(result) for result in results] == ["broken"] * 3


async def test_it_is_given_up_when_the_last_one_leaves() -> None:
    flights, ended = Flights(), asyncio.Event()

    async def work(say: Log) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.set()

    tasks = [asyncio.create_task(flights.join("key", work, None)) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    assert not ended.is_set()
    tasks[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    assert ended.is_set()
