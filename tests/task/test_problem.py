"""Problems print on one line and survive any content."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.task.problem import InvalidTask, Issue, Problem, dotted, nearest_line, place, printable, show


def test_how_a_problem_reads() -> None:
    problem = Problem(Path("t/task.toml"), 3, "error", "wrong", "right", "do it", "code")
    assert str(problem) == "t/task.toml:3: wrong; expected right; fix: do it"
    assert str(Problem(Path("t"), None, "warning", "odd")) == "t: warning: odd"
    assert problem.as_json() == {
        "file": "t/task.toml",
        "line": 3,
        "severity": "error",
        "code": "code",
        "message": "wrong",
        "expected": "right",
        "fix": "do it",
    }


def test_places() -> None:
    lines = {(): 1, ("a",): 4, ("a", 0): 5}
    assert nearest_line(("a", 0, "b"), lines) == 5
    assert nearest_line(("x",), lines) == 1
    assert nearest_line(("x",), {}) is None
    assert dotted(("steps", 0, "a", 1)) == "steps[0].a[1]"
    placed = place([Issue(("a", 0), "second"), Issue(("x",), "first")], Path("f"), lines)
    assert [problem.message for problem in placed] == ["x: first", "a[0]: second"]


def test_an_invalid_task_counts_errors_only() -> None:
    problems = [Problem(Path("f"), None, "error", "a"), Problem(Path("f"), None, "warning", "b")]
    assert str(InvalidTask(Path("t"), problems)) == "t: not a loadable task (1 problem)\n  f: a\n  f: warning: b"


def test_values_are_shown_bounded() -> None:
    assert show("x" * 1000) == "'" + "x" * 59 + "..."
    assert show(True) == "true"
    assert show(16**10_000) == "a very large int"
    assert printable("a\ud800\n\x07é") == "a\\ud800\\n\\x07é"


@settings(deadline=None)
@given(st.text(alphabet=st.characters(codec=None, categories=None)))
def test_any_text_can_be_printed(text: str) -> None:
    problem = Problem(Path("f"), 1, "error", text, text, text)
    assert len(str(problem).encode().splitlines()) == 1
    json.dumps(problem.as_json(), ensure_ascii=False).encode()
