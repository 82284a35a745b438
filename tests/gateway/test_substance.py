"""What makes two requests the same, and what does not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.gateway.substance import digest, first_difference, substance

PIECES = st.sampled_from([
    "hello", " ", "\n", "12:30", "2026-11-15", "T", "09:01:02.5Z", "3.5s", "4 ms", "/tmp/x1", "127.0.0.1:8080", "***",
    "1763200000", "deadbeefcafe0123", "Nov 15", ", 2026", "pid 77", "-", ":", "7", "<time>", "é", "11/15/2026",
])  # fmt: skip
TEXTS = st.lists(PIECES, max_size=8).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "id"]), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(VALUES)
def test_substance_has_the_same_substance(value: object) -> None:
    once = substance(value)
    assert substance(once) == once
    assert first_difference(once, once) is None


@settings(deadline=None)
@given(VALUES, VALUES)
def test_a_difference_is_found_exactly_when_there_is_one(one: object, other: object) -> None:
    mine, theirs = substance(one), substance(other)
    assert (first_difference(mine, theirs) is None) == (digest(mine) == digest(theirs))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Today is 2026-11-15.", "Today is 2027-01-02."),
        ("Today's date: Sunday, November 15, 2026", "Today's date: Monday, November 16, 2026"),
        ("Sun Nov 15 2026", "Mon Nov 16 2026"),
        ("at 2026-11-15T22:03:04.123Z", "at 2026-11-16 01:02:03"),
        ("took 3.21s", "took 14 ms"),
        ("a  b\n\nc ", "a b c"),
        ("http://127.0.0.1:40001/v1", "http://127.0.0.1:5/v1"),
        ("id 0b8f3c1e-5c3f-4e0a-9e5c-0123456789ab", "id ffffffff-5c3f-4e0a-9e5c-0123456789ab"),
        ("host 3f2a9c1b7d5e:/app$", "host 9c1b7d5e3f2a:/app$"),
        ("wrote /tmp/tmpab12/x", "wrote /tmp/tmpzz99/x"),
        ("KEY=bf-0123456789abcdefghijklmnopqrstuvwxyz", "KEY=***"),
        ("stamp 1763200000.25", "stamp 1763299999"),
        ("host=write-a-file-aa3c5bdb", "host=write-a-file-018924b7"),
        ("Chunk ID: d69fe6 Wall time: 0.1 seconds", "Chunk ID: e44c9e Wall time: 2.25 seconds"),
        ({"id": "a", "x": 1}, {"id": "b", "x": 1}),
        ({"tool_use_id": "toolu_1", "cache_control": {"type": "ephemeral"}}, {}),
        ({"x": None}, {}),
    ],
)
def test_what_changes_from_run_to_run_is_not_substance(one: object, other: object) -> None:
    assert substance(one) == substance(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("exit code 0", "exit code 1"),
        ("write a.txt", "write b.txt"),
        ("version 1.2.3", "version 1.2.4"),
        ("3 tests passed", "4 tests passed"),
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": True}),
        ("defaced facade", "facade defaced"),
    ],
)
def test_what_was_said_is_substance(one: object, other: object) -> None:
    assert substance(one) != substance(other) or first_difference(substance(one), substance(other))


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
