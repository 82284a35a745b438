"""What follows from a rollout, by cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from benchflow.job.config import RetryConfig
from benchflow.job.retry import DISK_FLOOR_MB, Halt, halt_of, retry_wait

if TYPE_CHECKING:
    from tests.job.conftest import MakeRow

RETRY = RetryConfig(max_retries=2, min_wait_sec=1, wait_multiplier=3)


@pytest.mark.parametrize(
    ("reward", "error", "again"),
    [
        (1.0, None, False),
        (0.0, None, False),
        (None, {}, True),
        (None, {"retryable": False}, False),
        (None, {"boundary": "verifier", "phase": "verifier", "retryable": False}, False),
        (None, {"boundary": "model", "phase": "agent_execution"}, True),
        (0.0, {"boundary": "agent", "phase": "agent_execution"}, False),
        (0.0, {"boundary": "agent", "phase": "agent_setup"}, True),
        (1.0, {"boundary": "agent", "phase": "agent_setup"}, False),
    ],
)
def test_retried_when_nothing_was_measured(
    make_row: MakeRow, make_error: Any, reward: float | None, error: dict[str, Any] | None, again: bool
) -> None:
    row = make_row(reward=reward, error=None if error is None else make_error(**error))
    assert retry_wait(row, 0, RETRY) == (1.0 if again else None)


def test_waits_grow_and_retries_end(make_row: MakeRow, make_error: Any) -> None:
    row = make_row(reward=None, error=make_error())
    assert [retry_wait(row, retries, RETRY) for retries in range(4)] == [1.0, pytest.approx(3.0), None, None]
    assert retry_wait(row, 0, RetryConfig(max_retries=0)) is None


def test_causes_that_all_rollouts_share(make_row: MakeRow, make_error: Any) -> None:
    def halt(reward: float | None = None, problem: str = "", disk: int = 10_000, **error: Any) -> Halt | None:
        row = make_row(reward=reward, model="m", error=make_error(**error))
        return halt_of(row, backend_problem=problem, disk_free_mb=disk)

    assert halt() is None
    gone = halt(problem="no engine answers")
    assert gone is not None
    assert "no engine answers" in gone.message
    assert gone.model is None
    assert halt(kind="SandboxUnavailable") is not None
    full = halt(boundary="benchflow", disk=DISK_FLOOR_MB - 1)
    assert full is not None
    assert "MB are free" in full.message
    assert halt(reward=0.0, disk=0) is None
    key = halt(boundary="model", kind="ModelError", retryable=False)
    assert key is not None
    assert key.model == "m"
    assert halt(boundary="model", kind="ModelError") is None
    assert halt(boundary="agent", problem="not asked") is None


def test_no_error_halts_nothing(make_row: MakeRow) -> None:
    assert halt_of(make_row(), backend_problem="", disk_free_mb=0) is None
