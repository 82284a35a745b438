"""What agents and tasks wrote is shown inert, and what was found of tampering is shown at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchflow.cli.console import console, print_error, print_json
from benchflow.cli.dashboard import event_line
from benchflow.cli.progress import LiveLines
from benchflow.cli.report import print_rollout
from benchflow.trajectory.events import event

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08[bold red]x[/]"


def inert(text: str) -> bool:
    return all(char.isprintable() or char in "\n\t" for char in text)


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
