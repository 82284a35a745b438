"""Room on the host: one rollout always fits, and what was admitted a moment ago is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.job.host import LOAD_PER_CORE, RESERVE_MB, SETTLE_SECONDS, USUAL_MB, Admission, Host, fits, look
from benchflow.job.retry import DISK_FLOOR_MB, Halt

if TYPE_CHECKING:
    from pathlib import Path


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
    assert not gate.admit(1, alone=False)
    assert gate.admit(1, alone=True)


def test_what_else_forbids_to_go_on_is_said() -> None:
    halt = Halt("enough")
    assert Admission(lambda: Host(None, 10_000), ceiling=lambda: halt).problem() is halt


def test_admission() -> None:
    now = [0.0]
    gate = Admission(lambda: Host(RESERVE_MB + 1000, 10_000), clock=lambda: now[0])
    assert gate.admit(5000, alone=True)
    assert not gate.admit(100, alone=False)
    now[0] = SETTLE_SECONDS
    assert gate.admit(700, alone=False)
    assert not gate.admit(None, alone=False) or USUAL_MB <= 300
    assert not gate.admit(400, alone=False)
    now[0] = 2 * SETTLE_SECONDS
    assert gate.admit(400, alone=False)
    assert gate.problem() is None


def test_a_full_disk_is_said() -> None:
    halt = Admission(lambda: Host(None, DISK_FLOOR_MB - 1)).problem()
    assert halt is not None
    assert str(DISK_FLOOR_MB - 1) in halt.message
