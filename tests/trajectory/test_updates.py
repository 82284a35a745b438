"""From ACP updates to events: every kind is kept, a call is created at first sight, an edit is told once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.trajectory import UpdateTranslator, tool_calls, updates

if TYPE_CHECKING:
    import pytest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
KINDS = [
    "agent_message_chunk",
    "agent_thought_chunk",
    "user_message_chunk",
    "tool_call",
    "tool_call_update",
    "plan",
    "usage_update",
    "current_mode_update",
    "available_commands_update",
    "something_new",
]


def test_text_chunks_become_messages_and_thoughts() -> None:
    translate = UpdateTranslator().translate
    [message] = translate({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "hi"}})
    [thought] = translate({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}})
    [echo] = translate({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "do it"}})
    assert (message["type"], message["text"]) == ("message", "hi")
    assert (thought["type"], thought["text"]) == ("thought", "hm")
    assert (echo["type"], echo["role"]) == ("message", "user")


def test_content_other_than_text_is_kept_as_it_is() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    [made] = UpdateTranslator().translate({"sessionUpdate": "agent_message_chunk", "content": image})
    assert made["content"] == image
    assert "text" not in made


def test_a_tool_call_has_its_arguments_and_output() -> None:
    translator = UpdateTranslator()
    [call] = translator.translate(
        {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "ls", "kind": "execute", "rawInput": {"cmd": "ls"}}
    )
    [update] = translator.translate(
        {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "rawOutput": "a\nb"}
    )
    assert (call["type"], call["arguments"]) == ("tool_call", {"cmd": "ls"})
    assert (update["type"], update["output"]) == ("tool_call_update", "a\nb")
    [whole] = tool_calls([call, update])
    assert (whole.title, whole.status, whole.arguments, whole.output) == ("ls", "completed", {"cmd": "ls"}, "a\nb")


def test_output_that_is_reported_beside_the_call_is_gathered() -> None:
    translator = UpdateTranslator()
    deltas = [{"terminal_output_delta": {"data": "a"}}, {"terminal_output": {"data": "b"}}, {"other": 1}]
    events = [
        one
        for meta in deltas
        for one in translator.translate({"sessionUpdate": "tool_call_update", "toolCallId": "c", "_meta": meta})
    ]
    [call] = tool_calls(events)
    assert call.output == "ab"


def test_an_update_without_a_call_creates_it_and_a_repeated_call_is_an_update() -> None:
    translator = UpdateTranslator()
    kinds = [
        translator.translate({"sessionUpdate": sent, "toolCallId": "c"})[0]["type"]
        for sent in ("tool_call_update", "tool_call", "tool_call_update")
    ]
    assert kinds == ["tool_call", "tool_call_update", "tool_call_update"]


def test_a_file_edit_is_one_diff_however_often_it_is_shown() -> None:
    translator = UpdateTranslator()
    block = {"type": "diff", "path": "/a", "oldText": "1", "newText": "2"}
    shown = {"toolCallId": "c", "content": [block, {"type": "terminal", "terminalId": "t"}]}
    first = translator.translate({"sessionUpdate": "tool_call", **shown})
    again = translator.translate({"sessionUpdate": "tool_call_update", **shown})
    assert [one["type"] for one in first] == ["tool_call", "diff"]
    assert [one["type"] for one in again] == ["tool_call_update"]
    assert first[0]["content"] == [{"type": "diff", "path": "/a"}, {"type": "terminal", "terminalId": "t"}]
    assert (first[1]["path"], first[1]["old_text"], first[1]["new_text"]) == ("/a", "1", "2")


def test_other_kinds_are_kept() -> None:
    translate = UpdateTranslator().translate
    [plan] = translate({"sessionUpdate": "plan", "entries": [{"content": "x"}]})
    [usage] = translate({"sessionUpdate": "usage_update", "used": 5, "size": 10, "source": "theirs"})
    [mode] = translate({"sessionUpdate": "current_mode_update", "currentModeId": "yolo"})
    [other] = translate({"sessionUpdate": "brand_new", "x": 1})
    assert plan["entries"] == [{"content": "x"}]
    assert (usage["used"], usage["size"], usage["source"]) == (5, 10, "update")
    assert mode["mode"] == "yolo"
    assert (other["type"], other["about"], other["data"]) == ("note", "brand_new", {"x": 1})


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "TRACKED_CALLS", 10)
    translator = UpdateTranslator()
    for number in range(100):
        translator.translate({"sessionUpdate": "tool_call", "toolCallId": str(number)})
    assert len(translator._calls._keys) == 10


@settings(deadline=None)
@given(
    JSON
    | st.fixed_dictionaries({"sessionUpdate": st.sampled_from(KINDS)}, optional={"toolCallId": JSON, "content": JSON})
)
def test_nothing_an_agent_sends_raises_or_is_dropped(update: object) -> None:
    made = UpdateTranslator().translate(update)
    assert made
    assert all(isinstance(one["type"], str) and isinstance(one["ts"], str) for one in made)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["tool_call", "tool_call_update"]), st.sampled_from("abc"))))
def test_every_id_is_created_exactly_once(sent: list[tuple[str, str]]) -> None:
    translator = UpdateTranslator()
    events = [one for kind, call in sent for one in translator.translate({"sessionUpdate": kind, "toolCallId": call})]
    created = [one["tool_call_id"] for one in events if one["type"] == "tool_call"]
    assert created == list(dict.fromkeys(call for _, call in sent))
    assert [call.id for call in tool_calls(events)] == created


def test_roles_and_sessions_may_use_the_same_ids() -> None:
    def call(kind: str, actor: str, status: str, output: str | None = None) -> dict[str, object]:
        return {"type": kind, "actor": actor, "tool_call_id": "1", "status": status, "output": output}

    found = tool_calls(
        [
            call("tool_call", "coder", "pending"),
            call("tool_call", "reviewer", "pending"),
            call("tool_call_update", "coder", "completed", "a"),
            call("tool_call_update", "reviewer", "failed", "b"),
            call("tool_call", "coder", "pending"),
            call("tool_call_update", "coder", "completed", "c"),
        ]
    )
    assert [one.output for one in found] == ["a", "b", "c"]
