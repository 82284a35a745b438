"""The order of work, and what is remembered of earlier jobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchflow.job.summary import JobResult, longest_first, remembered_seconds, task_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from tests.job.conftest import MakeRow


def test_longest_first_and_unknown_in_the_middle() -> None:
    tasks = ["short", "unknown", "long", "middle", "short"]
    seconds = {"short": 1.0, "middle": 5.0, "long": 9.0}
    assert longest_first(list("abcde"), tasks, seconds) == list("cbdae")
    assert longest_first([1, 2, 3], ["x", "y", "z"], {}) == [1, 2, 3]


def test_seconds_of_tasks(make_row: MakeRow) -> None:
    rows = [make_row("a", timing={"total": t}) for t in (1.0, 3.0)] + [make_row("b", None, timing={"total": 9.0})]
    assert task_seconds(rows) == {"a": 2.0}


def test_earlier_jobs_are_remembered_the_newest_word_counts(tmp_path: Path) -> None:
    import os

    for age, (name, known) in enumerate({"new": {"a": 2.0}, "old": {"a": 1.0, "b": 5.0}, "broken": None}.items()):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "summary.json"
        file.write_text(json.dumps({"task_seconds": known}))
        os.utime(file, (1000 - age, 1000 - age))
    assert remembered_seconds(tmp_path) == {"a": 2.0, "b": 5.0}
    assert remembered_seconds(tmp_path / "nowhere") == {}


def test_what_is_printed_of_a_job(tmp_path: Path, make_row: MakeRow) -> None:
    result = JobResult(tmp_path, "interrupted", [make_row(), make_row("b", 0.0)], 5)
    assert f"{result.passed}/{result.total} ({result.score:.1%})" == "1/5 (50.0%)"
    document = result.to_json()
    assert set(document) >= {"job_dir", "score", "usage", "rollouts"}
    score = document["score"]
    assert isinstance(score, dict)
    assert set(score) == {"passed", "scored", "lost", "total", "mean_reward", "interval"}
    rollouts = document["rollouts"]
    assert isinstance(rollouts, list)
    assert set(rollouts[0]) >= {"task", "agent", "model", "rewards", "error", "rollout_dir", "timing"}
