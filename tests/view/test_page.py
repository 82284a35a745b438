"""The page of a rollout: complete, and inert whatever an agent wrote."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import ConfigError
from benchflow.trajectory.events import event
from benchflow.view.load import page_of
from benchflow.view.page import inert, render

if TYPE_CHECKING:
    from pathlib import Path

RESULT = {
    "task": "benchflow/write-a-file",
    "agent": "claude",
    "rewards": {"reward": 1.0},
    "passed": True,
    "timing": {"environment_setup": 0.1, "total": 0.5},
}
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "main", "header", "h1", "h2", "h3", "p", "b", "i", "small"),
    *("section", "pre", "details", "summary", "ul", "li", "span", "meter"),
}


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes.update(name for name, _ in attrs)


def test_page_shows_what_happened() -> None:
    events = [
        event("prompt", text="write it"),
        event("thought", text="hm"),
        event("tool_call", tool_call_id="1", title="write", kind="edit", arguments={"path": "/app/x"}),
        event("tool_call_update", tool_call_id="1", status="completed", output="ok-output"),
        event("message", text="\n".join(f"line {n}" for n in range(40))),
        event("stop", reason="end_turn"),
    ]
    page = render(RESULT, events, "all good")
    for text in ("PASS", "write it", "/app/x", "ok-output", "completed", "line 39", "40 lines", "end_turn", "all good"):
        assert text in page


def test_an_error_is_shown_with_its_boundary() -> None:
    error = {"kind": "ACPError", "boundary": "agent", "phase": "execute", "message": "no <b>model</b>"}
    page = render({"task": "t", "error": error}, [])
    assert "agent · execute · ACPError" in page
    assert "no &lt;b&gt;model" in page


@given(
    st.text(),
    st.recursive(st.text() | st.integers() | st.none(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)),
)
@settings(deadline=None)
def test_whatever_an_agent_writes_is_inert(text: str, value: object) -> None:
    hostile = f"<script>alert(1)</script><img src=x onerror=y>\x1b[31m{text}"
    events = [
        event("message", text=hostile),
        event("tool_call", tool_call_id="1", title=hostile, kind=hostile, arguments=value, output=hostile),
        event("diff", path=hostile, new_text=hostile),
    ]
    page = render(RESULT | {"task": hostile, "notes": [hostile]}, events, hostile)
    tags = Tags(page)
    assert tags.seen <= ALLOWED
    assert not any(name.startswith("on") or name in ("src", "href") for name in tags.attributes)
    assert "\x1b" not in page


def test_control_characters_become_visible() -> None:
    assert inert("a\x1b[0m\u202eb\tc\n\x9b") == "a\u241b[0m\ufffdb\tc\n\ufffd"


def test_folder_that_is_no_rollout_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no result\.json"):
        page_of(tmp_path)


def test_running_rollout_shows_its_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"task": "half-done", "agent": "x"}))
    assert "half-done" in page_of(tmp_path)
