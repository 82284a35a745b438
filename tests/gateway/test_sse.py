"""The parser of server-sent events, under every way of cutting the bytes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.gateway.sse import Event, SseParser

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXT = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=40)
EVENTS = st.lists(
    st.builds(
        Event,
        data=st.lists(TEXT, min_size=1, max_size=4).map("\n".join),
        name=TEXT.filter(lambda name: not name.startswith(" ")),
    ),
    max_size=6,
)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(ends)]


def parse(chunks: Sequence[bytes], limit: int = 1 << 20) -> list[Event]:
    parser = SseParser(limit=limit)
    return [event for chunk in chunks for event in parser.feed(chunk)]


@settings(deadline=None)
@given(EVENTS, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.lists(st.integers(0, 400), max_size=12))
def test_events_come_out_as_they_went_in_however_they_are_cut(
    events: list[Event], line_end: bytes, places: list[int]
) -> None:
    data = b"".join(event.to_bytes() for event in events).replace(b"\n", line_end)
    assert parse(cut(data, places)) == events


@settings(deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=12))
def test_any_bytes_give_the_same_events_however_they_are_cut(data: bytes, places: list[int]) -> None:
    assert parse(cut(data, places)) == parse([data])


def test_comments_unknown_fields_and_empty_events_are_passed_over() -> None:
    data = b"\xef\xbb\xbf: ping\n\nid: 7\nretry: 3\n\nevent: e\n\ndata:x\ndata\ndata:  y\n\ndata: unfinished"
    assert parse([data]) == [Event("x\n\n y")]


def test_an_event_that_is_too_long_is_dropped_and_reading_goes_on() -> None:
    parser = SseParser(limit=100)
    assert parser.feed(b"data: " + b"x" * 1000 + b"\ndata: rest\n\n") == []
    assert parser.feed(b"data: next\n\n") == [Event("next")]
    assert parser.dropped == 1
