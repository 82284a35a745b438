"""The live writer: every event is on disk when it was appended, chunks are gathered, secrets never arrive."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import BenchflowError
from benchflow.trajectory import Event, TrajectoryWriter, event, join_pieces, read_events, writer

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = st.text(st.characters(exclude_categories=[])) | st.sampled_from(["\ud800", "\n", "\u2028", "é", "\x00", ""])
CHUNKS = st.lists(
    st.tuples(st.sampled_from(["message", "thought", "plan"]), TEXTS, st.sampled_from([None, "m1", "m2"])), max_size=20
)


def chunk(kind: str, text: str, message_id: str | None = None) -> Event:
    if kind == "plan":
        return event("plan", entries=[text])
    return event("thought" if kind == "thought" else "message", text=text, message_id=message_id)


def merged(events: list[Event]) -> list[tuple[object, object, object]]:
    """What a reader should see, computed the plain way."""
    seen: list[tuple[object, object, object]] = []
    for one in events:
        key = (one["type"], one.get("message_id"))
        if one["type"] != "plan" and seen and seen[-1][:2] == key:
            seen[-1] = (*key, str(seen[-1][2]) + str(one["text"]))
        else:
            seen.append((*key, one.get("text", one.get("entries"))))
    return [one for one in seen if one[2] != ""]


@settings(deadline=None)
@given(chunks=CHUNKS, flush_at=st.sets(st.integers(0, 20)))
def test_chunks_read_back_as_whole_messages_wherever_they_were_cut(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[tuple[str, str, str | None]], flush_at: set[int]
) -> None:
    path = tmp_path_factory.mktemp("t") / "acp_trajectory.jsonl"
    events = [chunk(*one) for one in chunks]
    with TrajectoryWriter(path) as trajectory:
        for number, one in enumerate(events):
            trajectory.append(one)
            if number in flush_at:
                trajectory._flush_piece()
    read = [(one["type"], one.get("message_id"), one.get("text", one.get("entries"))) for one in read_events(path)]
    assert read == merged(events)


def test_an_event_is_on_disk_when_append_returns(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "t.jsonl"
    with TrajectoryWriter(path) as trajectory:
        trajectory.append(event("tool_call", tool_call_id="a"))
        trajectory.append(event("tool_call_update", tool_call_id="a"))
        assert [one["type"] for one in read_events(path)] == ["tool_call", "tool_call_update"]
        assert (trajectory.n_tool_calls, trajectory.n_events) == (1, 2)


async def test_a_chunk_reaches_the_disk_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "GATHER_SECONDS", 0.0)
    path = tmp_path / "t.jsonl"
    with TrajectoryWriter(path) as trajectory:
        for text in ("one ", "two"):
            trajectory.append(event("message", text=text))
            for _ in range(10):  # a timer that is due fires within a few turns of the loop
                await asyncio.sleep(0)
            assert text in path.read_text()
        trajectory.append(event("stop", reason="end_turn"))
    assert [one.get("text") for one in read_events(path)] == ["one two", None]
    assert '"continues":true' in path.read_text()


def test_a_long_text_does_not_wait_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "GATHER_CHARS", 100)
    path = tmp_path / "t.jsonl"
    with TrajectoryWriter(path) as trajectory:
        for _ in range(50):
            trajectory.append(event("message", text="x" * 30))
            assert trajectory._gathering.chars <= 100
    assert [one["text"] for one in read_events(path)] == ["x" * 1500]


def test_a_killed_writer_leaves_every_event(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    code = (
        "import os, pathlib, signal, sys\n"
        "from benchflow.trajectory import TrajectoryWriter, event\n"
        "w = TrajectoryWriter(pathlib.Path(sys.argv[1]))\n"
        "for n in range(100): w.append(event('note', about='n', data=n))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert [one["data"] for one in read_events(path)] == list(range(100))


def test_what_follows_a_torn_line_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"type":"note","about":"a"}\n{"type":"no')
    assert [one["about"] for one in read_events(path)] == ["a"]
    with TrajectoryWriter(path) as trajectory:
        trajectory.append(event("note", about="b"))
    assert [one["about"] for one in read_events(path)] == ["a", "unreadable line", "b"]


def test_numbers_and_depths_that_json_lacks_do_not_stop_it(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    deep: list[object] = []
    for _ in range(200_000):
        deep = [deep]
    with TrajectoryWriter(path) as trajectory:
        trajectory.append(event("note", about="a", data=[float("inf"), {"x": float("nan")}]))
        trajectory.append(event("note", about="b", data=deep))
        trajectory.append(event("note", about="c"))
    while deep:  # released one level at a time: the interpreter would recurse
        deep = deep[0]  # type: ignore[assignment]
    events = list(read_events(path))
    assert events[0]["data"] == ["inf", {"x": "nan"}]
    assert [one["about"] for one in events] == ["a", "event that cannot be written as JSON", "c"]


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BenchflowError, match=r"cannot write .*file/t\.jsonl"):
        TrajectoryWriter(tmp_path / "file" / "t.jsonl")


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: write(2) fails halfway through a line."""
    path = tmp_path / "t.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    trajectory = TrajectoryWriter(path)
    try:
        trajectory.append(event("note", about="kept"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
        with pytest.raises(BenchflowError, match=r"cannot write .*t\.jsonl"):
            trajectory.append(event("note", about="lost"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
        trajectory.append(event("note", about="after"))
        trajectory.close()
    assert [one["about"] for one in read_events(path)] == ["kept", "unreadable line", "after"]


SECRETS = st.text(st.sampled_from('ab"\\\né1😀'), min_size=5, max_size=8)


@settings(deadline=None)
@given(
    secret=SECRETS,
    parts=st.lists(st.text(st.sampled_from('ab"\\\né1😀'), max_size=6), max_size=8),
    cut=st.integers(1, 4),
    timed=st.booleans(),
)
def test_a_secret_never_reaches_the_file_also_not_in_pieces(
    tmp_path_factory: pytest.TempPathFactory, secret: str, parts: list[str], cut: int, timed: bool
) -> None:
    path = tmp_path_factory.mktemp("t") / "t.jsonl"
    text = secret.join(parts)
    with TrajectoryWriter(path, secrets=[secret, "b"]) as trajectory:
        for start in range(0, len(text), cut):
            trajectory.append(event("message", text=text[start : start + cut]))
            if timed:
                trajectory._flush_piece()
        trajectory.append(event("tool_call", tool_call_id="c", arguments={text: [text], "n": 12345}))
    events = list(read_events(path))
    assert all(secret not in found for one in events for found in strings(one))
    assert events[-1]["type"] == "tool_call"


def test_a_secret_made_of_digits_is_masked_and_the_file_stays_json(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with TrajectoryWriter(path, secrets=["123456", ""]) as trajectory:
        trajectory.append(event("usage", source="update", used=91234567, size=1, nested=[1234560.5, True]))
    [line] = path.read_text().splitlines()
    one = json.loads(line)
    assert (one["used"], one["size"], one["nested"]) == ("***", 1, ["***", True])


def strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [found for key, item in value.items() if key != "ts" for found in (key, *strings(item))]
    if isinstance(value, list):
        return [found for item in value for found in strings(item)]
    return [str(value)]


def test_pieces_join_only_what_belongs_together() -> None:
    events = [
        event("message", text="a"),
        event("message", text="b", continues=True),
        event("message", text="c"),
        event("thought", text="d", continues=True),
        event("stop", reason="end_turn"),
    ]
    assert [one.get("text") for one in join_pieces(events)] == ["ab", "c", "d", None]


def test_a_file_that_does_not_exist_has_no_events(tmp_path: Path) -> None:
    assert list(read_events(tmp_path / "none.jsonl")) == []


def test_a_flood_fills_no_disk_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with TrajectoryWriter(path, limit=5000) as trajectory:
        for number in range(200):
            trajectory.append(event("tool_call", id=str(number), title="x" * 100))
        trajectory.append(event("message", text="x" * 10_000))
    events = list(read_events(path))
    assert path.stat().st_size < 5500
    assert [one["id"] for one in events[:-1]] == [str(number) for number in range(len(events) - 1)]
    assert (events[-1]["type"], "5000 bytes" in str(events[-1]["about"])) == ("note", True)
    assert trajectory.n_tool_calls == 200
    assert trajectory.n_dropped == 201 - (len(events) - 1)
    with TrajectoryWriter(path, limit=5000) as again:
        again.append(event("message", text="more"))
    assert path.stat().st_size < 5800
