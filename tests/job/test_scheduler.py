"""The scheduler on its own: how many run, what is tried again, and how it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.job.gate import Gate
from benchflow.job.host import Admission, Host
from benchflow.job.retry import Halt
from benchflow.job.scheduler import Scheduler, Verdict, Work

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tests.job.conftest import MakeRow

    from benchflow.job.row import Row

ROOM = Gate(Admission(lambda: Host(None, 10**6)))


class Hall:
    """Plays and judges as a test says, and counts."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.running = self.most = 0
        self.played: list[Work] = []
        self.verdicts: dict[tuple[str, int], list[Verdict]] = {}
        self.wait: Callable[[Work], Awaitable[object]] = lambda _: asyncio.sleep(0)

    async def play(self, work: Work) -> Row:
        self.played.append(work)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.wait(work)
        finally:
            self.running -= 1
        return self.row

    async def judge(self, work: Work, row: Row) -> Verdict:
        return self.verdicts.get(work.key, [Verdict()] * (work.tried + 1))[work.tried - 1]

    def scheduler(self, work: Sequence[Work], concurrency: int, gate: Gate = ROOM) -> Scheduler:
        return Scheduler(work, self.play, self.judge, concurrency=concurrency, gate=gate)


@pytest.fixture
def hall(make_row: MakeRow) -> Hall:
    return Hall(make_row())


def works(n: int, **fields: object) -> list[Work]:
    return [Work((f"m{i}", 1), **fields) for i in range(n)]  # type: ignore[arg-type]


async def until(so: Callable[[], bool]) -> None:
    """Let others go on until it is so; every step of theirs is one turn of the loop."""
    for _ in range(1000):
        if so():
            return
        await asyncio.sleep(0)
    pytest.fail("it never was so")


@given(st.integers(0, 30), st.integers(1, 10))
@settings(deadline=None)
def test_everything_runs_once_in_order_and_never_too_many(n: int, concurrency: int) -> None:
    hall = Hall(row=None)  # type: ignore[arg-type]
    asyncio.run(hall.scheduler(works(n), concurrency).run())
    assert [work.key for work in hall.played] == [work.key for work in works(n)]
    assert hall.most == min(n, concurrency)


async def test_a_retry_holds_no_place(hall: Hall) -> None:
    """With one place, the others run while the first waits for its second try."""
    hall.verdicts["m0", 1] = [Verdict(wait=0.05), Verdict(wait=0.0), Verdict()]
    await hall.scheduler(works(4), 1).run()
    assert [work.key[0] for work in hall.played] == ["m0", "m1", "m2", "m3", "m0", "m0"]
    assert [(work.tried, work.retries) for work in hall.played if work.key[0] == "m0"] == [(1, 0), (2, 1), (3, 2)]


async def test_draining_finishes_what_runs(hall: Hall) -> None:
    gate = asyncio.Event()
    hall.wait = lambda _: gate.wait()
    hall.verdicts["m0", 1] = [Verdict(wait=0.0)]
    scheduler = hall.scheduler(works(10), 3)
    run = asyncio.create_task(scheduler.run())
    await until(lambda: hall.running == 3)
    scheduler.drain()
    gate.set()
    await run
    assert [work.key[0] for work in hall.played] == ["m0", "m1", "m2"]
    assert scheduler.drained


@pytest.mark.parametrize(
    ("n", "verdict", "undone"),
    [(3, Verdict(), True), (2, Verdict(wait=0.0), True), (2, Verdict(), False)],
    ids=["not started", "not tried again", "nothing"],
)
async def test_what_draining_left_undone_is_known(hall: Hall, n: int, verdict: Verdict, *, undone: bool) -> None:
    gate = asyncio.Event()
    hall.wait = lambda _: gate.wait()
    hall.verdicts["m0", 1] = [verdict]
    scheduler = hall.scheduler(works(n), 2)
    run = asyncio.create_task(scheduler.run())
    await until(lambda: hall.running == 2)
    scheduler.drain()
    scheduler.drain()
    gate.set()
    await run
    assert scheduler.unfinished is undone


async def test_draining_ends_a_wait(hall: Hall) -> None:
    hall.verdicts["m0", 1] = [Verdict(wait=3600)]
    scheduler = hall.scheduler(works(1), 1)
    run = asyncio.create_task(scheduler.run())
    await until(lambda: bool(scheduler._waiting))
    scheduler.drain()
    await run
    assert scheduler.unfinished


async def test_a_shared_cause_is_said_once_and_stops_admission(hall: Hall) -> None:
    said: list[Halt] = []
    for name in ("m0", "m1"):
        hall.verdicts[name, 1] = [Verdict(halt=Halt("daemon gone"))]
    scheduler = Scheduler(works(10), hall.play, hall.judge, concurrency=2, gate=ROOM, on_halt=said.append)
    await scheduler.run()
    assert len(hall.played) == 2
    assert said == scheduler.halts == [Halt("daemon gone")]


async def test_the_cause_of_one_model_spares_the_others(hall: Hall) -> None:
    work = [Work((f"m{i}", 1), model="ab"[i % 2]) for i in range(10)]
    hall.verdicts["m0", 1] = [Verdict(halt=Halt("dead key", "a"))]
    hall.verdicts["m1", 1] = [Verdict(wait=0.0), Verdict()]
    scheduler = hall.scheduler(work, 1)
    await scheduler.run()
    assert [one.key[0] for one in hall.played] == ["m0", "m1", "m3", "m5", "m7", "m9", "m1"]


async def test_a_full_disk_starts_nothing(hall: Hall) -> None:
    scheduler = hall.scheduler(works(3), 2, Gate(Admission(lambda: Host(None, 1))))
    await scheduler.run()
    assert not hall.played
    assert "free" in scheduler.halts[0].message


async def test_without_memory_one_runs_at_a_time(hall: Hall) -> None:
    scheduler = hall.scheduler(works(5, memory_mb=100), 4, Gate(Admission(lambda: Host(50, 10**6))))
    await scheduler.run()
    assert len(hall.played) == 5
    assert hall.most == 1


async def test_cancelling_cancels_what_runs_and_forgets_what_waits(hall: Hall) -> None:
    hall.verdicts["m0", 1] = [Verdict(wait=3600)]
    forever = asyncio.Event()
    hall.wait = lambda work: asyncio.sleep(0) if work.key[0] == "m0" else forever.wait()
    scheduler = hall.scheduler(works(5), 2)
    run = asyncio.create_task(scheduler.run())
    await until(lambda: bool(scheduler._waiting) and hall.running == 2)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert hall.running == 0
    assert not scheduler._waiting
    assert len(hall.played) == 3
