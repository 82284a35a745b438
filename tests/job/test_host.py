"""Room on the host: one rollout always fits, and what was admitted a moment ago is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.job.host import LOAD_PER_CORE, RESERVE_MB, SETTLE_SECONDS, USUAL_MB, Admission, Host, fits, look
from benchflow.job.retry import DISK_FLOOR_MB, Halt
from benchflow.job.scheduler import Work

if TYPE_CHECKING:
    from pathlib import Path


def a_work(number: int, memory_mb: int | None = None) -> Work:
    return Work(("measurement", number), memory_mb=memory_mb)


def test_this_host(tmp_path: Path) -> None:
    host = look(tmp_path)
    assert host.disk_mb > 0
    assert host.memory_mb is None or host.memory_mb > 0


@given(st.integers(0, 100_000), st.integers(1, 100_000), st.integers(0, 100_000))
@settings(deadline=None)
def test_it_fits_when_the_reserve_stays_free(free: int, need: int, unsettled: int) -> None:
    assert fits(Host(free, 0), need, unsettled) == (free - unsettled - need >= RESERVE_MB)


def test_unknown_memory_is_no_limit() -> None:
    assert fits(Host(None, 0), 10**9, 0)


def test_processors_that_do_not_keep_up_get_nothing_more_but_one() -> None:
    assert fits(Host(None, 0, LOAD_PER_CORE), 1, 0)
    gate = Admission(lambda: Host(None, 10_000, LOAD_PER_CORE + 1))
    assert not gate.admit(a_work(1), [a_work(2)])
    assert gate.admit(a_work(1), [])


def test_what_else_forbids_to_go_on_is_said() -> None:
    halt = Halt("enough")
    assert Admission(lambda: Host(None, 10_000), ceiling=lambda: halt).problem() is halt


def test_admission() -> None:
    now = [0.0]
    gate = Admission(lambda: Host(RESERVE_MB + 1000, 10_000), clock=lambda: now[0])
    first, second = a_work(1, 5000), a_work(2, 700)
    assert gate.admit(first, [])
    assert not gate.admit(a_work(3, 100), [first])
    now[0] = SETTLE_SECONDS
    assert gate.admit(second, [first])
    assert not gate.admit(a_work(3), [first, second]) or USUAL_MB <= 300
    assert not gate.admit(a_work(3, 400), [first, second])
    now[0] = 2 * SETTLE_SECONDS
    assert gate.admit(a_work(3, 400), [first, second])
    assert gate.problem() is None


def test_what_ended_soon_takes_no_room() -> None:
    """A rollout that lasts no second must not hold back others for as long as one needs to take its memory."""
    gate = Admission(lambda: Host(RESERVE_MB + 1000, 10_000), clock=lambda: 0.0)
    beside = a_work(0, 400)
    assert gate.admit(beside, [])
    for number in range(1, 20):
        assert gate.admit(a_work(number, 600), [beside])
        assert not gate.admit(a_work(100, 600), [beside, a_work(number, 600)])


def test_a_full_disk_is_said() -> None:
    halt = Admission(lambda: Host(None, DISK_FLOOR_MB - 1)).problem()
    assert halt is not None
    assert str(DISK_FLOOR_MB - 1) in halt.message
