"""What agents and tasks wrote is shown inert, and what was found of tampering is shown at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.view.sample import two_roles, write

from benchflow.cli.console import console, print_error, print_json
from benchflow.cli.dashboard import Watcher, event_line
from benchflow.cli.progress import LiveLines
from benchflow.cli.report import print_rollout
from benchflow.job.plan import Measurement
from benchflow.job.scheduler import Work
from benchflow.trajectory.events import event

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    import pytest

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08[bold red]x[/]"


def inert(text: str) -> bool:
    return all(char.isprintable() or char in "\n\t" for char in text)


def shown(folder: Path, capsys: pytest.CaptureFixture[str], result: dict[str, Any] | None = None) -> str:
    console.cache_clear()
    print_rollout(folder, result if result is not None else json.loads((folder / "result.json").read_text()))
    console.cache_clear()
    return capsys.readouterr().out


def test_everything_that_is_known_of_a_rollout_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = " ".join(shown(two_roles(tmp_path / "r"), capsys).split())
    for words in (
        *("[PASS, SUSPECT] reward 1, speed 0.5", "agent error in agent_execution: AgentGone", "| Traceback"),
        *("more in agent/claude.txt", "note: cut off", "trust suspect (tampering: 1 critical, 2 info)", "live = true"),
        *("verified fork", "tokens 12,345 in (1,000 from cache), 678 out", "cost unknown, at least $0.5000 by table 1"),
        *("limit cut off by the rollout's budget of 2.5 (cost)", "before: reward 0.125", "agent working 61.00 s"),
        *("build reward 0.75", "round 0 of review reward 0, 2 tool calls", "round 1 of review no reward"),
        *("outer coder · big · reward 0.5 · kept", "inner coder · big · reward 0.25", "/bin/sh critical left"),
        *("coder prompt (instruction → coder) Write it.", "coder tool call make all [execute, completed]"),
        *("reviewer prompt (transcript, message from coder, scene → reviewer) Review it.", "round 1 of review"),
        *("reviewer tool call cat x [read, failed]", "coder message coder → reviewer: Please look."),
        *("nobody.json refused: no role", "not delivered: coder has no further turn", "reviewer error went wrong"),
    ):
        assert words in said, words


def test_nothing_is_shown_of_what_is_absent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "r", {"task": "t", "agent": "nop", "rewards": None, "usage": {}, "error": None})
    assert [" ".join(line.split()) for line in shown(folder, capsys).splitlines()] == [
        *("t", "[LOST] no reward", "agent nop", "verified not", "trust trusted"),
        "usage tokens unknown · cost unknown",
    ]
    running = shown(folder, capsys, {"task": "t", "agent": "nop"})
    assert "has not ended" in running
    assert "usage" not in running


def test_every_place_of_what_is_shown_is_inert_and_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(two_roles(tmp_path / "r", EVIL + "z" * 20_000), capsys)
    assert inert(said)
    assert "[bold red]x[/]" in said


def test_several_roles_and_rounds_are_told_while_they_happen(capsys: pytest.CaptureFixture[str]) -> None:
    from benchflow.cli.console import err_console

    measurement: Any = Measurement("m", "p", "task", "", "claude", None, *(None, None))  # type: ignore[arg-type]
    watcher = Watcher(Work(("m", 1)), measurement)
    err_console.cache_clear()
    lines = LiveLines()
    for watching in (watcher, lines):
        watching.phase("agent_execution")
        watching.event(event("note", about="round", data={"round": 1, "scene": f"review{EVIL}"}))
        watching.event(event("prompt", text="go", actor="reviewer"))
        watching.event(event("tool_call", tool_call_id="1", title="ls", actor="reviewer"))
        watching.event(event("note", about="message", data={"from": "reviewer", "to": "coder", "content": "x"}))
    err_console.cache_clear()
    assert watcher.doing.startswith("working · round 1 of review")
    assert watcher.doing.endswith(" · reviewer")
    assert inert(watcher.doing)
    said = capsys.readouterr().err
    assert inert(said)
    for words in ("round 1 of review", "reviewer is asked", "● reviewer: ls", "✉ reviewer → coder"):
        assert words in said, words
    alone = Watcher(Work(("m", 1)), measurement)
    alone.phase("agent_execution")
    alone.event(event("tool_call", tool_call_id="1", title="ls"))
    assert alone.doing == "working"


def test_a_rollout_is_shown_with_its_tampering_and_inert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "trajectory").mkdir()
    call = event("tool_call", tool_call_id="1", title=EVIL, kind=EVIL, status="completed")
    (tmp_path / "trajectory" / "acp_trajectory.jsonl").write_text(json.dumps(call) + "\n")
    finding = {"path": f"/bin/{EVIL}", "family": "system-file", "severity": "critical", "action": "left"}
    (tmp_path / "tampering.json").write_text(json.dumps({"findings": [{**finding, "detail": EVIL, "count": 3}]}))
    result = {
        "task": EVIL,
        "agent": EVIL,
        "rewards": {"reward": 1.0},
        "passed": True,
        "trust": "suspect",
        "opt_outs": ["live = true"],
        "notes": [EVIL],
        "error": {"boundary": "agent", "phase": "x", "kind": "y", "message": EVIL},
    }
    console.cache_clear()
    print_rollout(tmp_path, result)
    console.cache_clear()
    said = capsys.readouterr().out
    assert inert(said)
    assert "[PASS, SUSPECT]" in said
    assert "critical" in said
    assert "system-file" in said
    assert "and 2 more" in said
    assert "live = true" in said
    assert "[bold red]x[/]" in said


def test_what_a_copied_file_says_is_no_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "tampering.json").write_text('{"findings": [{"path": "/planted"}]}')
    console.cache_clear()
    print_rollout(tmp_path, {"task": "t", "rewards": {"reward": 0.0}})
    console.cache_clear()
    assert "planted" not in capsys.readouterr().out


def test_errors_events_and_json_are_inert(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(f"the agent said\n{EVIL}")
    print_json({"said": EVIL})
    assert inert(event_line({"event": "remark", "message": EVIL}, 1, 2))
    said = capsys.readouterr()
    assert inert(said.err)
    assert inert(said.out)
    assert json.loads(said.out) == {"said": EVIL}


def test_live_lines_are_inert(capsys: pytest.CaptureFixture[str]) -> None:
    from benchflow.cli.console import err_console

    err_console.cache_clear()
    lines = LiveLines()
    lines.event(event("tool_call", tool_call_id="1", title=EVIL))
    lines.event(event("error", message=EVIL))
    err_console.cache_clear()
    assert inert(capsys.readouterr().err)
