"""The pace of an account: waits that are asked for, fewer at a time, more again."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.gateway.pace import FIRST_WAIT, LONGEST_WAIT, Pace


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_nobody_waits_while_the_provider_does_not_complain() -> None:
    pace = Pace()
    async with pace.turn(), pace.turn(), pace.turn():
        assert pace.window is None


async def test_after_a_complaint_half_as_many_may_run() -> None:
    pace = Pace()
    began = now()
    async with pace.turn(), pace.turn(), pace.turn(), pace.turn():
        pace.slow_down(0, began)
        assert pace.window == 2
        pace.slow_down(0, began)
        assert pace.window == 2, "another complaint about the same time tells nothing new"


async def test_success_makes_room_again() -> None:
    pace = Pace()
    async with pace.turn(), pace.turn():
        pace.slow_down(0, now())
    assert pace.window == 1
    for _ in range(10):
        pace.went_well()
    assert pace.window is not None
    assert pace.window > 2


async def test_without_a_word_of_how_long_waits_grow_and_end_with_success() -> None:
    pace = Pace()
    waits = [pace.slow_down(None, now()) for _ in range(12)]
    assert waits[:3] == [FIRST_WAIT, 2 * FIRST_WAIT, 4 * FIRST_WAIT]
    assert max(waits) == LONGEST_WAIT
    pace.went_well()
    assert pace.slow_down(None, now()) == FIRST_WAIT


async def test_everybody_waits_as_long_as_was_asked_for() -> None:
    pace = Pace()
    began = now()
    pace.slow_down(0.1, began)
    async with pace.turn():
        assert now() - began >= 0.1


async def test_who_gives_up_waiting_does_not_hold_the_others_up() -> None:
    pace = Pace()
    async with pace.turn():
        pace.slow_down(0, now())

        async def enter() -> None:
            async with pace.turn():
                pass

        impatient, patient = asyncio.create_task(enter()), asyncio.create_task(enter())
        await asyncio.sleep(0.01)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        assert not patient.done()
    async with asyncio.timeout(10):
        await patient


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(["run", "complain", "well", "leave"]), max_size=40))
def test_whatever_happens_all_get_their_turn_and_never_too_many(steps: list[str]) -> None:
    async def play() -> None:
        pace = Pace()
        tasks: list[asyncio.Task[None]] = []
        running = 0

        async def one() -> None:
            nonlocal running
            async with pace.turn():
                running += 1
                try:
                    assert pace.window is None or running <= max(pace.window, at_most)
                    await asyncio.sleep(0)
                finally:
                    running -= 1

        at_most = 0
        for step in steps:
            match step:
                case "run":
                    tasks.append(asyncio.create_task(one()))
                case "complain":
                    at_most = max(at_most, running)
                    pace.slow_down(0, now())
                case "well":
                    pace.went_well()
                case "leave" if tasks:
                    tasks.pop().cancel()
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await asyncio.gather(*tasks)

    asyncio.run(play())
