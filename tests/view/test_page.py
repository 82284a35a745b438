"""The page of a rollout: complete, bounded, and inert whatever an agent wrote."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.view.sample import two_roles, write

from benchflow.errors import ConfigError
from benchflow.trajectory.events import event
from benchflow.view.folder import page_of
from benchflow.view.load import Seen, read_rollout
from benchflow.view.markup import inert
from benchflow.view.page import render

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp.test_utils import TestClient

RESULT = {
    "task": "benchflow/write-a-file",
    "agent": "claude",
    "rewards": {"reward": 1.0},
    "passed": True,
    "timing": {"environment_setup": 0.1, "total": 0.5},
}
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "main", "header", "nav", "h1", "h2", "h3", "p", "b", "small"),
    *("section", "pre", "details", "summary", "ul", "li", "span", "div", "meter", "a"),
    *("table", "thead", "tbody", "tr", "td", "th"),
}
HOSTILE = "<script>alert(1)</script><img src=x onerror=y>\" onclick='z' </style></pre>\x1b[31m\u202e"


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str | None] = set()
        self.ids: list[str | None] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.links.update(value for name, value in attrs if name == "href")
        self.ids += [value for name, value in attrs if name == "id"]


def words(page: str) -> str:
    """What a reader sees of a page, on one line."""
    return re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL))


def is_inert(page: str) -> bool:
    tags = Tags(page)
    acts = any(name.startswith("on") or name == "src" for name in tags.attributes)
    away = any(not str(link).startswith("#") for link in tags.links)
    return tags.seen <= ALLOWED and not acts and not away and not re.search("[\x1b\u202e]", page)


def test_page_shows_what_happened(tmp_path: Path) -> None:
    events = [
        event("prompt", text="write it"),
        event("thought", text="hm"),
        event("tool_call", tool_call_id="1", title="write", kind="edit", arguments={"path": "/app/x"}),
        event("tool_call_update", tool_call_id="1", status="completed", output="ok-output"),
        event("message", text="\n".join(f"line {n}" for n in range(40))),
        event("stop", reason="end_turn"),
    ]
    asked = {"scene_role": "agent", "agent": "claude", "source": "instruction", "prompt": "write it"}
    seen = Seen(tmp_path, RESULT, events, [asked], outputs=[("", "all good")])
    page = words(render(seen))
    for text in ("PASS", "Prompt to agent · instruction", "write it", "/app/x", "ok-output", "completed", "line 39"):
        assert text in page, text
    for text in ("40 lines", "end_turn", "all good", "tokens unknown · cost unknown"):
        assert text in page, text


def test_page_shows_roles_rounds_branches_and_all_that_is_known(tmp_path: Path) -> None:
    page = page_of(two_roles(tmp_path / "r"))
    text = words(page)
    for said in (
        *("PASS, SUSPECT", "reward 1", "agent error in agent_execution: AgentGone", "| Traceback", "last words"),
        *("tokens 12,345 in (1,000 from cache), 678 out", "cost unknown, at least $0.5000 by table 1"),
        *("cut off by the rollout&#x27;s budget of 2.5 (cost)", "live = true", "reward 0.125", "build reward 0.75"),
        *("suspect (tampering: 1 critical, 2 info)", "/bin/sh", "system-file: changed (and 2 more)", "left"),
        *("coder Prompt · instruction", "reviewer Prompt · scene", "message from coder", "transcript", "41 lines"),
        *("coder → reviewer", "reviewer → coder, not delivered: coder has no further turn", "nobody.json refused"),
        *("round 0 of review reward 0, 2 tool calls", "no reward, 2 tool calls; not scored: the tests did not end"),
        *("first check", "second check", "branch 1 coder · big · reward 0.5 · kept", "branch 1.1 coder · big · reward"),
        *("branch 1 goes off here", "said in the outer branch", "said in the inner branch", "1 test passed"),
        "Verifier output of build built well",
        *("coder make all execute · completed", "reviewer cat x read · failed", "agent working 61.00 s"),
    ):
        assert said in text, said
    tags = Tags(page)
    assert is_inert(page)
    assert {str(link)[1:] for link in tags.links} <= set(tags.ids), "every link leads somewhere"
    assert len(tags.ids) == len(set(tags.ids))
    assert text.index("round 0 of review", text.index("Story")) < text.index("branch 1 goes off here")


def test_whatever_is_absent_is_not_there(tmp_path: Path) -> None:
    page = words(render(Seen(tmp_path, {"task": "t", "agent": "a", "rewards": None})))
    assert "LOST" in page
    for word in ("Rounds", "Branches", "Steps", "Tampering", "limit", "opt-outs", "error", "Story", "note"):
        assert word not in page, word


@given(
    st.text(),
    st.recursive(st.text() | st.integers() | st.none(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)),
)
@settings(deadline=None)
def test_whatever_an_agent_writes_is_inert(text: str, value: object) -> None:
    hostile = f"{HOSTILE}{text}"
    events = [
        event("message", text=hostile),
        event("tool_call", tool_call_id="1", title=hostile, kind=hostile, arguments=value, output=hostile),
        event("diff", path=hostile, new_text=hostile, actor=hostile),
        event("note", about=hostile, data=value),
        event("note", about="message", data={"from": hostile, "to": value, "content": value}),
        event("note", about="round", data={"round": value, "scene": hostile}),
        {"type": hostile, "x": value},
    ]
    result = RESULT | {"task": hostile, "notes": [hostile, value], "limit": {"kind": value, "limit": value}}
    assert is_inert(render(Seen(None, result, events, [value], outputs=[(hostile, hostile)])))  # type: ignore[arg-type]


def test_every_place_of_a_page_is_inert(tmp_path: Path) -> None:
    page = page_of(two_roles(tmp_path / "r", HOSTILE))
    assert is_inert(page)
    assert page.count("&lt;script&gt;") > 30


def test_control_characters_become_visible() -> None:
    assert inert("a\x1b[0m\u202eb\tc\n\x9b") == "a\u241b[0m\ufffdb\tc\n\ufffd"


def test_huge_outputs_are_bounded(tmp_path: Path) -> None:
    long = "x" * 10_000_000
    events = [event("message", text=long)]
    events += [event("tool_call", tool_call_id=str(n), title=long, arguments=[long], output=long) for n in range(2)]
    folder = write(tmp_path / "r", RESULT, events)
    (folder / "verifier" / "test-stdout.txt").write_text(f"begin{long}end")
    page = page_of(folder)
    assert len(page) < 2_000_000
    assert "9,900,000 characters are left out here" in page
    assert "xend" in page
    nested: list[object] = []
    for _ in range(5_000):
        nested = [nested]
    assert "nested too deeply" in inert(nested)


def test_a_long_story_ends_and_says_how_much_is_missing(tmp_path: Path) -> None:
    events = [event("message", text="y" * 90_000 + str(n)) for n in range(150)]
    page = page_of(write(tmp_path / "r", RESULT, events))
    assert len(page) < 10_000_000
    assert re.search(r"\d+ more are in trajectory/acp_trajectory.jsonl", page)


def test_folder_that_is_no_rollout_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no result\.json"):
        page_of(tmp_path)


def test_a_branch_is_looked_for_below_its_rollout_only(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", {"task": "stolen", "rewards": None})
    listed = [{"folder": f"../../{outside.name}", "rewards": None}, {"folder": "gone"}]
    seen = read_rollout(write(tmp_path / "r", RESULT | {"branches": listed}))
    assert seen.branches == {}
    assert "stolen" not in render(seen)


def test_running_rollout_shows_its_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"task": "half-done", "agent": "x"}))
    page = page_of(tmp_path)
    assert "half-done" in page
    assert "RUNNING" in page


def test_a_job_lists_its_rollouts(tmp_path: Path) -> None:
    job = tmp_path / "job"
    two_roles(job / "two__1", HOSTILE)
    (job / "half__2").mkdir()
    (job / "half__2" / "config.json").write_text(json.dumps({"task": "half-done", "agent": "x"}))
    page = page_of(job)
    assert is_inert(page)
    for text in (
        "demo/two-roles",
        "PASS, SUSPECT",
        "two__1",
        "half-done",
        "RUNNING",
        "half__2",
        "1 passed of 1 scored",
    ):
        assert text in words(page), text


async def test_a_served_job_leads_to_its_rollouts(tmp_path: Path) -> None:
    from aiohttp.test_utils import TestClient, TestServer

    from benchflow.view.serve import make_app

    two_roles(tmp_path / "job" / "two__1")
    write(tmp_path / "secret__1", RESULT)
    client: TestClient = TestClient(TestServer(make_app(tmp_path / "job")))  # type: ignore[type-arg]
    async with client:
        home = await (await client.get("/")).text()
        assert 'href="rollout/two__1"' in home
        shown = await client.get("/rollout/two__1")
        assert shown.status == 200
        assert "said in the inner branch" in await shown.text()
        for name in ("nothing__2", "..%2fsecret__1", "..%2f..%2fsecret__1"):
            assert (await client.get(f"/rollout/{name}")).status == 404
