"""What results add up to."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from benchflow.errors import ConfigError
from benchflow.job import collect_metrics
from benchflow.job.metrics import metrics_of, pass_k
from benchflow.rollout.result import Usage

if TYPE_CHECKING:
    from pathlib import Path

    from tests.job.conftest import MakeRow, WriteResult


def test_groups_tags_and_errors(make_row: MakeRow, make_error: Any) -> None:
    rows = [
        make_row("a", 1.0, model="m", n_tool_calls=4, timing={"total": 2.0, "verifier": 1.0}),
        make_row("a", 0.0, model="m", attempt=2, usage=Usage(input_tokens=10, cost_usd=0.5)),
        make_row("b", 0.5, model="n", usage=Usage(input_tokens=5)),
        make_row("b", None, model="n", attempt=2, error=make_error(message="first\nsecond")),
        make_row("c", 0.0, model="n", error=make_error("AgentTimeout", "agent", phase="agent_execution")),
    ]
    found = metrics_of(rows, {"a": ["x", "y"], "b": ["x"]}, "TB")
    score = found.overall.score
    assert (score.passed, score.scored, score.lost, score.total) == (1, 4, 1, 5)
    assert score.mean_reward == 1.5 / 4
    assert found.overall.tool_calls == 0.8
    assert found.overall.seconds["total"] == 0.4
    said = {name: value for name, value in found.overall.usage.items() if value is not None}
    assert said == {"input_tokens": 15, "priced_usd": 0.5}, "a cost of which a part is unknown is unknown"
    assert found.overall.usage["cost_usd"] is None
    assert [(group.name, group.score.passed, group.score.scored) for group in found.groups] == [
        ("a m", 1, 2),
        ("a n", 0, 2),
    ]
    assert [(group.name, group.score.scored, group.tasks) for group in found.tags] == [("x", 3, 2), ("y", 2, 1)]
    assert [(e.boundary, e.kind, e.count, e.lost) for e in found.overall.errors] == [
        ("sandbox", "SandboxError", 1, 1),
        ("agent", "AgentTimeout", 1, 0),
    ]
    text = found.summary()
    for words in ("TB: 5 rollouts of 3 tasks", "1 passed of 4 scored, 1 lost: 25.0 %", "first", "$0.50", "pass@k"):
        assert words in text
    assert "second" not in text
    assert json.loads(json.dumps(found.to_json()))["overall"]["score"]["lost"] == 1
    lines = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [(line["by"], line["name"], line["passed"], line["pass_at_2"]) for line in lines] == [
        ("agent", "a m", "1", "1.0"),
        ("agent", "a n", "0", ""),
        ("tag", "x", "1", "1.0"),
        ("tag", "y", "1", "1.0"),
    ]


def test_suspect_passes_are_counted_apart(make_row: MakeRow) -> None:
    rows = [make_row("a"), make_row("b"), make_row("c", 0.0), make_row("d", trust="suspect")]
    rows += [replace(make_row("e"), trust="suspect"), replace(make_row("f", 0.0), trust="suspect")]
    found = metrics_of(rows, {}, "TB")
    assert (found.overall.score.passed, found.overall.suspect) == (4, 2)
    assert found.overall.trusted_share == pytest.approx(2 / 6)
    assert "2 of the passes are suspect: 33.3 % without them" in found.summary()
    assert found.to_json()["overall"]["suspect"] == 2  # type: ignore[index]
    assert "suspect:" not in metrics_of(rows[:3], {}, "TB").summary()


def test_what_was_found_of_tampering_is_counted(make_row: MakeRow) -> None:
    rows = [
        replace(make_row("a"), tampering={"warning": 2}),
        replace(make_row("b"), tampering={"critical": 1, "info": 3}),
    ]
    found = metrics_of([*rows, make_row("c")], {}, "TB")
    assert found.overall.tampering == {"critical": 1, "warning": 2, "info": 3}
    assert "tampering: 1 critical, 2 warning, 3 info" in found.summary()
    assert "tampering" not in metrics_of([make_row("c")], {}, "TB").summary()


def test_time_and_cost_are_told_by_phase_and_by_tag(make_row: MakeRow) -> None:
    timing = {"environment_setup": 1.0, "agent_setup": 2.0, "agent_execution": 30.0, "verifier": 4.0, "total": 37.0}
    rows = [make_row(task, timing=timing, usage=Usage(cost_usd=cost)) for task, cost in (("a", 0.5), ("b", 1.5))]
    found = metrics_of(rows, {"a": ["x"], "b": ["y"]}, "TB")
    assert found.overall.cost == {"agent_execution": 1.0}
    assert [(tag.name, tag.cost["agent_execution"], tag.seconds["verifier"]) for tag in found.tags] == [
        ("x", 0.5, 4.0),
        ("y", 1.5, 4.0),
    ]
    assert "agent_execution    30.0 s        $1.00" in found.summary()
    assert metrics_of([make_row("a")], {}, "TB").overall.cost == {"agent_execution": None}


def test_pass_k_is_averaged_over_the_tasks_that_have_k() -> None:
    found = pass_k([(1, 3), (3, 3), (0, 1)])
    assert [(one.k, one.tasks) for one in found] == [(1, 3), (2, 2), (3, 2)]
    assert [one.at for one in found] == pytest.approx([(1 / 3 + 1) / 3, (2 / 3 + 1) / 2, 1.0])
    assert [one.hat for one in found] == pytest.approx([(1 / 3 + 1) / 3, 0.5, 0.5])
    assert pass_k([]) == []


def test_attempts_of_two_agents_are_not_attempts_of_one(make_row: MakeRow) -> None:
    rows = [
        make_row("t", reward, agent=agent, attempt=at) for agent, reward in (("a", 1.0), ("b", 0.0)) for at in (1, 2)
    ]
    found = metrics_of(rows, {"t": ["x"]}, "TB")
    for group in (found.overall, found.tags[0]):
        assert [(one.k, one.at, one.hat, one.tasks) for one in group.pass_k] == [(1, 0.5, 0.5, 2), (2, 0.5, 0.5, 2)]


def test_of_a_job_and_of_a_folder_of_jobs(tmp_path: Path, write_result: WriteResult) -> None:
    write_result(tmp_path / "tb2" / "one", "a__1", 1.0)
    write_result(tmp_path / "tb2" / "one", "b__1", 0.0)
    write_result(tmp_path / "tb2" / "two", "a__1", None)
    both = collect_metrics(str(tmp_path / "tb2"), benchmark="TB2")
    assert (both.jobs, both.overall.score.total, both.benchmark) == (2, 3, "TB2")
    assert both.summary().startswith("TB2: 3 rollouts of 2 tasks")
    one = collect_metrics(tmp_path / "tb2" / "one")
    assert (one.jobs, one.overall.score.total, one.benchmark) == (1, 2, "one")
    with pytest.raises(ConfigError, match="no results"):
        collect_metrics(tmp_path)


def test_nothing_scored(make_row: MakeRow) -> None:
    found = metrics_of([make_row(reward=None)], {}, "x")
    assert "0 passed of 0 scored, 1 lost" in found.summary()
    assert found.overall.score.interval == (0.0, 1.0)
