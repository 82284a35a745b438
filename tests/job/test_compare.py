"""Two sets of results, task by task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from benchflow.errors import ConfigError
from benchflow.job.compare import TaskPair, compare, compare_folders, what_is_needed
from benchflow.job.lock import JobLock, LockedMeasurement, LockedTask, write_lock
from benchflow.job.stats import paired_interval

if TYPE_CHECKING:
    from pathlib import Path

    from tests.job.conftest import WriteResult

counts = st.integers(1, 5).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
sides = st.dictionaries(st.sampled_from("abcdefghij"), counts, min_size=1)


@given(sides, sides)
@settings(deadline=None)
def test_any_two(a: dict[str, tuple[int, int]], b: dict[str, tuple[int, int]]) -> None:
    common = a.keys() & b.keys()
    if not common:
        with pytest.raises(ConfigError):
            compare(a, b)
        return
    found, back = compare(a, b), compare(b, a)
    differences = [b[task][0] / b[task][1] - a[task][0] / a[task][1] for task in sorted(common)]
    assert found.difference == pytest.approx(np.mean(differences))
    assert found.difference == pytest.approx(-back.difference)
    assert found.p_value == back.p_value
    assert found.interval == paired_interval(differences)
    wins, losses = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    assert (len(found.gained), len(found.lost)) == (wins, losses)
    assert found.p_value == pytest.approx(binomtest(wins, wins + losses).pvalue if wins + losses else 1.0)
    assert set(found.only_a) == a.keys() - b.keys()
    assert json.loads(json.dumps(found.to_json()))["tasks"] == len(common)
    assert found.summary()


def test_one_attempt_each_is_mcnemar() -> None:
    a = {f"t{i}": (int(i < 10), 1) for i in range(20)}
    b = {f"t{i}": (int(i >= 2), 1) for i in range(20)}
    found = compare(a, b, "before", "after")
    assert found.difference == pytest.approx(0.4)
    assert found.p_value == pytest.approx(binomtest(2, 12).pvalue)
    assert [pair.task for pair in found.lost] == ["t0", "t1"]
    text = found.summary()
    assert "+40.0 points" in text
    assert "better in B (10):" in text
    assert "  t0  1/1 -> 0/1" in text


def test_flaky_tasks_are_named() -> None:
    found = compare({"a": (1, 3), "b": (3, 3)}, {"a": (0, 3), "b": (3, 3)})
    assert "flaky (1): a" in found.summary()


def test_when_it_is_decided() -> None:
    pairs = [TaskPair(str(i), (0, 3), (3, 3)) for i in range(20)]
    assert what_is_needed(pairs).decided
    same = [TaskPair(str(i), (1, 2), (1, 2)) for i in range(20)]
    assert what_is_needed(same) == what_is_needed([TaskPair("x", (0, 1), (1, 1))])


def test_more_attempts_settle_noise() -> None:
    """Every task is a little better in B, and attempts are noisy: as many attempts as it says do settle it."""
    rng = np.random.default_rng(3)

    def play(n: int, attempts: int) -> list[TaskPair]:
        a, b = rng.binomial(attempts, 0.45, n), rng.binomial(attempts, 0.6, n)
        return [TaskPair(str(i), (int(a[i]), attempts), (int(b[i]), attempts)) for i in range(n)]

    answers = [what_is_needed(play(30, 2)) for _ in range(200)]
    attempts = [answer.attempts for answer in answers if answer.attempts]
    assert len(attempts) > 40
    likely = int(np.median(attempts))
    assert 3 <= likely <= 60
    assert np.mean([what_is_needed(play(30, max(40, likely))).decided for _ in range(100)]) > 0.9


def test_more_attempts_do_not_settle_what_tasks_disagree_about() -> None:
    split = [
        TaskPair(str(i), (0, 50), (50, 50)) if i % 5 < 3 else TaskPair(str(i), (50, 50), (0, 50)) for i in range(20)
    ]
    needed = what_is_needed(split)
    assert not needed.decided
    assert needed.attempts is None
    assert needed.tasks is not None
    assert needed.tasks > 20
    assert "tasks would" in compare({p.task: p.a for p in split}, {p.task: p.b for p in split}).summary()


def test_folders(tmp_path: Path, write_result: WriteResult) -> None:
    write_result(tmp_path / "a", "t__1", 1.0)
    write_result(tmp_path / "a", "u__1", None)
    write_result(tmp_path / "b", "t__1", 0.0)
    write_result(tmp_path / "b", "u__1", 1.0)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert [pair.task for pair in found.pairs] == ["t"]
    assert found.only_b == ["u"]
    assert found.remarks == []


def lock(job: Path, **digests: str) -> None:
    """Write down which content each task of a job had."""
    tasks = {name: LockedTask(f"tasks/{name}", digest) for name, digest in digests.items()}
    measured = [LockedMeasurement(f"m-{name}", name, "a", "m", 2, 0) for name in digests]
    write_lock(job, JobLock(job.name, "", {}, None, "local", "", {}, [], tasks, measured))


def test_what_makes_two_less_than_comparable_is_said(tmp_path: Path, write_result: WriteResult) -> None:
    for job in ("a", "b"):
        for task in ("t", "u"):
            write_result(tmp_path / job, f"{task}__1", labels={"measurement": f"m-{task}", "attempt": 1})
    lock(tmp_path / "a", t="1", u="1")
    lock(tmp_path / "b", t="1", u="2")
    folder = write_result(tmp_path / "b", "t__2", labels={"measurement": "m-t", "attempt": 2})
    file = folder / "result.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "agent": "other"}))
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert found.remarks == ["not the same content everywhere (1): u", "B takes several together: a m, other m"]
    assert "note: not the same content everywhere (1): u" in found.summary()
    assert found.to_json()["remarks"] == found.remarks
