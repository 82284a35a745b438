"""Framing: how bytes are cut into chunks makes no difference, and noise never hides a message."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.acp.framing import LineSplitter, Message, Noise, parse

BODY = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": st.text()}, optional={"id": st.integers() | st.text(), "params": st.text()}
)
LINES = st.binary().filter(lambda line: b"\n" not in line) | BODY.map(lambda body: json.dumps(body).encode())


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks = []
    for size in sizes:
        chunks.append(data[:size])
        data = data[size:]
    return [*chunks, data]


@settings(deadline=None)
@given(lines=st.lists(LINES), sizes=st.lists(st.integers(0, 40)))
def test_any_chunking_gives_the_same_lines(lines: list[bytes], sizes: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter()
    assert [line for chunk in cut(data, sizes) for line in splitter.feed(chunk)] == lines
    assert splitter.end() == b""


@settings(deadline=None)
@given(lines=st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line)), sizes=st.lists(st.integers(0, 9)))
def test_a_line_beyond_the_limit_is_cut_and_the_next_is_whole(lines: list[bytes], sizes: list[int]) -> None:
    splitter = LineSplitter(limit=10)
    data = b"".join(line + b"\n" for line in lines) + b"unfinished line"
    assert [line for chunk in cut(data, sizes) for line in splitter.feed(chunk)] == [line[:10] for line in lines]
    assert splitter.end() == b"unfinished"


@settings(deadline=None)
@given(body=BODY, before=st.text(st.characters(exclude_characters="\n")))
def test_a_message_is_found_behind_text_without_a_newline(body: dict[str, object], before: str) -> None:
    *noise, message = parse(before.encode("utf-8", "replace") + json.dumps({"jsonrpc": "2.0", **body}).encode())
    assert message == Message("request" if "id" in body else "notification", body)
    assert len(noise) == bool(before.strip())


@settings(deadline=None)
@given(st.binary())
def test_no_line_raises(line: bytes) -> None:
    assert all(isinstance(found, Message | Noise) for found in parse(line))


def test_what_is_a_message() -> None:
    def kind(text: str) -> str | None:
        [found] = parse(text.encode())
        return found.kind if isinstance(found, Message) else None

    assert kind('{"method":"a","id":1}') == "request"
    assert kind('{"method":"a","id":"x"}') == "request"
    assert kind('{"method":"a","id":null}') == "notification"
    assert kind('{"id":1,"result":null}') == "response"
    assert kind('{"id":1,"error":{}}') == "response"
    assert kind('{"method":"a","id":[1]}') is None
    assert kind('{"method":"a","id":true}') is None
    assert kind('{"id":1}') is None
    assert kind('{"level":"info"}') is None
    assert kind("[" * 100_000) is None
    assert kind('{"a":' * 100_000) is None
    assert kind('{"method":"a","x":%s}' % ("9" * 5000)) is None


def test_bytes_that_are_not_utf8_do_not_lose_a_message() -> None:
    [found] = parse(b'{"method":"a","params":"\xff"}')
    assert found == Message("notification", {"method": "a", "params": "\ufffd"})
