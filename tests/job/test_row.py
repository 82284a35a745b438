"""Rows from results, and which of several tries counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchflow.job.row import lost_row, row_of, settle

if TYPE_CHECKING:
    from tests.job.conftest import MakeRow


def test_the_last_try_counts_but_a_scored_one_before_a_lost_one(make_row: MakeRow) -> None:
    lost = make_row(reward=None, tried=1)
    scored = make_row(reward=0.0, tried=2)
    later = make_row(reward=1.0, tried=3)
    also_lost = make_row(reward=None, tried=4)
    other = make_row(attempt=2)
    for rows in ([lost, scored, later, also_lost, other], [also_lost, later, other, scored, lost]):
        assert settle(rows) == {("m-t", 1): later, ("m-t", 2): other}
    assert settle([lost, also_lost])[("m-t", 1)] == also_lost


def test_a_rollout_of_no_job_is_itself(make_row: MakeRow) -> None:
    rows = [make_row(measurement="", rollout_dir=Path(f"t__{n}")) for n in range(3)]
    assert len(settle(rows)) == 3


def test_what_is_printed(make_row: MakeRow, make_error: Any) -> None:
    row = make_row(reward=None, error=make_error(), timing={"total": 2.5})
    document = row.to_json()
    assert document["rewards"] is None
    assert document["error"] == {
        "kind": "SandboxError",
        "boundary": "sandbox",
        "phase": "environment_setup",
        "message": "it broke",
        "retryable": True,
    }
    assert row.seconds == 2.5
    assert not row.scored


def test_a_failure_that_wrote_nothing() -> None:
    row = lost_row(("m", 2), 3, "t", "a", None, OSError(28, "No space left on device"))
    assert row.key == ("m", 2)
    assert (row.tried, row.scored, row.passed) == (3, False, False)
    assert row.error is not None
    assert row.error.boundary == "benchflow"
    assert "No space" in row.error.message


@pytest.mark.parametrize("document", [{}, {"rewards": 3, "error": None}, {"rewards": {}, "error": {"x": 1}}])
def test_what_is_not_a_result(document: dict[str, object]) -> None:
    with pytest.raises((LookupError, TypeError, ValueError, AttributeError)):
        row_of(document, Path("x"))
