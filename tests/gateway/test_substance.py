"""What makes two requests the same, and what does not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.gateway.moment import Span
from benchflow.gateway.substance import conversation, digest, first_difference, substance

THEN = Span(datetime(2026, 11, 15, 12, 25, tzinfo=UTC), datetime(2026, 11, 15, 12, 55, tzinfo=UTC))
NOW = Span(datetime(2027, 1, 2, 8, 0, tzinfo=UTC), datetime(2027, 1, 2, 8, 20, tzinfo=UTC))

PIECES = st.sampled_from([
    "hello", " ", "\n", "12:30", "2026-11-15", "T", "09:01:02.5Z", "3.5s", "4 ms", "/tmp/x1", "127.0.0.1:8080", "***",
    "1763200000", "deadbeefcafe0123", "Nov 15", ", 2026", "pid 77", "-", ":", "7", "<time>", "é", "11/15/2026",
])  # fmt: skip
MOMENTS = st.floats(1_000_100_000, 1_999_900_000)
TEXTS = st.lists(PIECES, max_size=8).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "id"]), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(VALUES)
def test_substance_has_the_same_substance(value: object) -> None:
    once = substance(value, THEN)
    assert substance(once, THEN) == once
    assert first_difference(once, once) is None


@settings(deadline=None)
@given(VALUES, VALUES)
def test_a_difference_is_found_exactly_when_there_is_one(one: object, other: object) -> None:
    mine, theirs = substance(one, THEN), substance(other, THEN)
    assert (first_difference(mine, theirs) is None) == (digest(mine) == digest(theirs))


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("Today is 2026-11-15.", "Today is 2027-01-02."),
        ("Today's date: Sunday, November 15, 2026", "Today's date: Saturday, January 2, 2027"),
        ("Sun Nov 15 2026", "Sat Jan 2 2027"),
        ("Sun Nov 15 12:30:01 UTC 2026", "Sat Jan  2 08:15:59 UTC 2027"),
        ("Sun, 15 Nov 2026 12:30:01 +0000", "Sat, 02 Jan 2027 08:15:59 +0000"),
        ("at 2026-11-15T12:33:04.123Z", "at 2027-01-02 08:02:03"),
        ("it is 12:31", "it is 08:11:12"),
        ("it is 12:31 PM", "it is 8:11 AM"),
        ("11/15/2026, 12:31", "1/2/2027, 8:11"),
        ("-rw-r--r-- 1 root root 5 Nov 15 12:30 a.txt", "-rw-r--r-- 1 root root 5 Jan  2 08:11 a.txt"),
        ("stamp 1794745800.25", "stamp 1798877000"),
        ("built 2025-03-01 10:00:00.123456 +0000", "built 2026-02-01 11:00:01.654321 +0000"),
        ("took 3.21s", "took 14 ms"),
        ("2 passed in 4 s", "2 passed in 11 s"),
        ("a  b\n\nc ", "a b c"),
        ("http://127.0.0.1:40001/v1", "http://127.0.0.1:5/v1"),
        ("id 0b8f3c1e-5c3f-4e0a-9e5c-0123456789ab", "id ffffffff-5c3f-4e0a-9e5c-0123456789ab"),
        ("host 3f2a9c1b7d5e:/app$", "host 9c1b7d5e3f2a:/app$"),
        ("wrote /tmp/tmpab12cd34/x", "wrote /tmp/tmpzz99yy88/x"),
        ("wrote /tmp/tmp.Ab12Cd34Ef", "wrote /tmp/tmp.Zz99Yy88Xx"),
        (". .tmpPV4xzd a.txt", ". .tmpOABKQ9 a.txt"),
        ("Process Group PGID: 45", "Process Group PGID: 47"),
        ("KEY=bf-0123456789abcdefghijklmnopqrstuvwxyz", "KEY=***"),
        ("host=write-a-file-aa3c5bdb", "host=write-a-file-018924b7"),
        ("Chunk ID: d69fe6 Wall time: 0.1 seconds", "Chunk ID: e44c9e Wall time: 2.25 seconds"),
        ("Original token count: 556", "Original token count: 91"),
        ({"id": "a", "x": 1}, {"id": "b", "x": 1}),
        ({"tool_use_id": "toolu_1", "cache_control": {"type": "ephemeral"}}, {}),
        ({"x": None}, {}),
        ({"tools": [{"name": "b"}, {"name": "a"}]}, {"tools": [{"name": "a"}, {"name": "b"}]}),
    ],
)
def test_what_changes_from_run_to_run_is_not_substance(then: object, now: object) -> None:
    assert substance(then, THEN) == substance(now, NOW)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("exit code 0", "exit code 1"),
        ("write a.txt", "write b.txt"),
        ("wrote /tmp/a.txt", "wrote /tmp/b.txt"),
        ("version 1.2.3", "version 1.2.4"),
        ("3 tests passed", "4 tests passed"),
        ("timeout 30 seconds", "timeout 60 seconds"),
        ("the meeting is at 2026-12-24 14:00", "the meeting is at 2026-12-25 14:00"),
        ("the meeting is at 14:00", "the meeting is at 15:00"),
        ("born on March 3, 1999", "born on March 4, 1999"),
        ("main.py:12:30: error", "main.py:12:45: error"),
        ("number 123456789012", "number 123456789013"),
        ("e3b0c442" * 8, "f3b0c442" * 8),
        ("user id: 1234", "user id: 5678"),
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": True}),
        ("defaced facade", "facade defaced"),
        ({"properties": {"id": {"type": "string"}}}, {"properties": {"id": {"type": "number"}}}),
        ({"name": "get", "input": {"id": "a"}}, {"name": "get", "input": {"id": "b"}}),
    ],
)
def test_what_was_said_is_substance(one: object, other: object) -> None:
    assert first_difference(substance(one, THEN), substance(other, THEN))


@settings(deadline=None)
@given(MOMENTS, MOMENTS)
def test_whenever_it_runs_its_own_clock_is_not_substance(one: float, other: float) -> None:
    texts = []
    for now in (one, other):
        moment = datetime.fromtimestamp(now, UTC)
        shown = f"{moment:%Y-%m-%d %H:%M:%S} {moment:%a %b %d %H:%M:%S UTC %Y} {moment:%H:%M} {int(moment.timestamp())}"
        texts.append(substance(shown, Span(moment - timedelta(minutes=5), moment + timedelta(minutes=5))))
    assert texts[0] == texts[1]


def test_for_another_model_only_the_conversation_counts() -> None:
    reminder = "<system-reminder>You are model A.</system-reminder>"
    anthropic = {"system": "A", "tools": [1], "messages": [{"role": "user", "content": [{"text": f"{reminder}hi"}]}]}
    assert conversation(anthropic) == {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    chat = {"messages": [{"role": "system", "content": "A"}, {"role": "user", "content": "hi"}], "temperature": 1}
    assert conversation(chat) == {"messages": [{"role": "user", "content": "hi"}]}
    responses = {
        "instructions": "A",
        "input": [{"role": "developer", "content": "A"}, {"role": "user", "content": "hi"}],
    }
    assert conversation(responses) == {"input": [{"role": "user", "content": "hi"}]}
    assert conversation({"systemInstruction": 1, "contents": [{"parts": []}]}) == {"contents": [{"parts": []}]}


def test_a_difference_says_where_and_how() -> None:
    recorded = {"messages": [{"role": "user", "content": "x" * 500 + "the old end"}], "n": 1}
    now = {"messages": [{"role": "user", "content": "x" * 500 + "the new end"}], "n": 1}
    said = first_difference(recorded, now)
    assert said is not None
    assert said.startswith("request.messages[0].content differs:")
    assert "the old end" in said
    assert "the new end" in said
    assert len(said) < 500
    assert "request.n differs" in str(first_difference({"n": 1}, {}))
    assert "3 items instead of 2: now also" in str(first_difference([1, 2], [1, 2, 3]))
    assert "1 items instead of 2: no longer 2" in str(first_difference([1, 2], [1]))
