from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchflow.testing.contract.interrupt import count_waits, run_interrupted, spread


class Steps:
    """Work that waits several times and says how far it came, cleaning up with two waits of its own."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    async def work(self) -> None:
        try:
            for number in range(4):
                self.seen.append(number)
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            self.seen.append("clean")
            await asyncio.sleep(0.001)
            self.seen.append("done")


async def test_undisturbed_work_is_counted() -> None:
    steps = Steps()
    assert await count_waits(steps.work()) == 6
    assert steps.seen == [0, 1, 2, 3, "clean", "done"]


@pytest.mark.parametrize(
    ("point", "seen"),
    [
        (1, [0, "clean", "done"]),
        (4, [0, 1, 2, 3, "clean", "done"]),
        (5, [0, 1, 2, 3]),
        (6, [0, 1, 2, 3, "clean"]),
        (7, [0, 1, 2, 3, "clean", "done"]),
    ],
)
async def test_the_chosen_wait_is_cancelled(point: int, seen: list[object]) -> None:
    steps = Steps()
    await run_interrupted(steps.work(), point)
    assert steps.seen == seen


async def test_other_failures_come_through() -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        await run_interrupted(work(), 9)


@given(total=st.integers(0, 500), count=st.integers(2, 60))
def test_points_are_spread_over_all(total: int, count: int) -> None:
    points = spread(total, count)
    assert len(points) <= count
    assert points == sorted(set(points))
    assert set(points) <= set(range(1, total + 1))
    assert points[:1] + points[-1:] == ([1, total] if total else [])
