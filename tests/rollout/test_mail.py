"""Messages: what is one, who gets it, and that its words cannot pretend to be anything else."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.rollout.mail import LETTERS_LIMIT, Entry, Mail, Message, Refused, joined, read_messages

ROLES = ["coder", "reviewer"]


def entry(content: object, *, to: str = "coder", sender: str | None = "reviewer") -> Entry:
    return Entry(f"{to}.json", sender, json.dumps(content).encode())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"to": "coder", "content": "x"}, ["x"]),
        ({"content": "x"}, ["x"]),
        ([{"content": "x"}, {"to": "coder", "content": "y"}], ["x", "y"]),
        ({"content": "x", "from": "reviewer", "mood": "kind"}, ["x"]),
        ({"content": "\ud800!"}, ["?!"]),
    ],
)
def test_messages(content: object, says: list[str]) -> None:
    found = read_messages(json.dumps(content).encode(), sender="reviewer", to="coder")
    assert [message.content for message in found] == says
    assert {message.sender for message in found} == {"reviewer"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff{}", "not UTF-8"),
        (b"please fix it", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "holds 0 messages"),
        (json.dumps([{"content": "x"}] * (LETTERS_LIMIT + 1)).encode(), "holds 51"),
        (b'"x"', "an object"),
        (b'{"to": "reviewer", "content": "x"}', "named after 'coder'"),
        (b'{"to": ["coder"], "content": "x"}', "named after 'coder'"),
        (b'{"from": "coder", "content": "x"}', "which it is not"),
        (b'{"content": 7}', "is text"),
        (b'{"content": "x", "done": "yes"}', "true or false"),
        (b'{"content": "  "}', "missing or empty"),
        (b"{}", "missing or empty"),
    ],
)
def test_what_is_no_message(data: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why):
        read_messages(data, sender="reviewer", to="coder")


@given(st.binary(max_size=200) | st.recursive(st.text(), st.lists).map(lambda value: json.dumps(value).encode()))
@settings(deadline=None)
def test_any_bytes_are_messages_or_refused(data: bytes) -> None:
    with suppress(Refused):
        read_messages(data, sender="reviewer", to="coder")


@given(st.text(max_size=300), st.text(max_size=300))
@settings(deadline=None)
def test_no_content_can_end_its_own_message(content: str, other: str) -> None:
    part = Message("reviewer", "coder", content).part()
    forged = Message("reviewer", "coder", f"{content}\n{part.text}\n{other}").part()
    first, *_, last = forged.text.splitlines()
    mark = first.split('id="')[1].rstrip('">')
    assert last == f'</message id="{mark}">'
    assert forged.text.count(mark) == 2


def test_a_message_is_delivered_once_and_before_the_prompt() -> None:
    mail = Mail(ROLES)
    (made,) = mail.take([entry({"content": "fix it"})])
    assert (made["about"], made["data"]) == ("message", {"from": "reviewer", "to": "coder", "content": "fix it"})
    assert mail.open_turn("reviewer") == []
    (part,) = mail.open_turn("coder")
    assert (part.source, part.role) == ("message", "reviewer")
    assert joined([part]).startswith('<message from="reviewer"')
    assert mail.open_turn("coder") == []


def test_a_sender_is_told_why_not() -> None:
    mail = Mail(ROLES, ["coder", "reviewer", "coder"])
    mail.open_turn("coder")
    refused = [
        Entry("coder.json", "reviewer", problem="it is no regular file"),
        Entry("boss.json", "reviewer", b"{}"),
        Entry("notes.txt", "reviewer", b"{}"),
        Entry("coder.json", None, b'{"content": "x"}'),
        entry({"content": "done", "to": "scene"}, to="scene"),
    ]
    events = mail.take(refused)
    assert {event["about"] for event in events} == {"message refused"}
    notices = mail.open_turn("reviewer")
    assert [notice.source for notice in notices] == ["notice"] * 4
    assert "it is no regular file" in notices[0].text
    assert 'write .outbox/coder.json in the workspace: {"to": "coder", "content": "..."}' in notices[0].text
    assert "coder.json, reviewer.json" in notices[1].text
    assert "nobody waits for you" in notices[3].text


def test_a_message_to_someone_without_a_turn_is_told_and_not_kept() -> None:
    mail = Mail(ROLES, ["coder", "reviewer"])
    mail.open_turn("coder")
    mail.take([entry({"content": "x"}, to="reviewer", sender="coder")])
    assert [part.role for part in mail.open_turn("reviewer")] == ["coder"]
    (late,) = mail.take([entry({"content": "too late"})])
    assert late["about"] == "message not delivered"
    assert "no further turn" in str(late["data"])
    assert mail.close() == []


def test_what_waits_when_the_scene_ends_is_said() -> None:
    mail = Mail(ROLES, ["coder", "reviewer", "coder"])
    mail.take([entry({"content": "x"})])
    (lost,) = mail.close()
    assert (lost["about"], mail.close()) == ("message not delivered", [])


@pytest.mark.parametrize(
    ("to", "content", "done"),
    [
        ("scene", {"to": "scene", "content": "Done"}, True),
        ("scene", {"done": True}, True),
        ("coder", {"content": "LGTM", "done": True}, True),
        ("scene", {"content": "not done yet"}, False),
    ],
)
def test_a_role_says_that_the_scene_is_done(to: str, content: object, done: bool) -> None:
    mail = Mail(ROLES, listens_to=["reviewer"])
    mail.take([entry(content, to=to)])
    assert mail.done == (["reviewer"] if done else [])
    mail.take([entry({"done": True}, to="scene", sender="coder")])
    assert "coder" not in mail.done
