"""Streams put together, answers taken apart, usage read: for the four dialects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.gateway.dialects.table import DIALECTS
from benchflow.gateway.tokens import Tokens
from benchflow.testing.model.anthropic import Anthropic
from benchflow.testing.model.chat import Chat
from benchflow.testing.model.gemini import Gemini
from benchflow.testing.model.responses import Responses
from benchflow.testing.model.wire import Call, Completion, Tool

if TYPE_CHECKING:
    from benchflow.agent.spec import Dialect as DialectName
    from benchflow.gateway.dialects.base import Json
    from benchflow.testing.model.wire import Dialect as Scripted

SCRIPTED: dict[DialectName, Scripted] = {
    "anthropic": Anthropic(),
    "openai-chat": Chat(),
    "openai-responses": Responses(),
    "gemini": Gemini(),
}
NAMES: list[DialectName] = list(SCRIPTED)

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
COMPLETIONS = st.builds(
    Completion,
    id=st.just("7"),
    model=st.just("m-1"),
    text=st.text(max_size=60),
    thought=st.text(max_size=30),
    call=st.none()
    | st.builds(
        Call, tool=st.just(Tool("bash")), id=st.just("9"), arguments=st.dictionaries(st.text(max_size=5), JSON_VALUES)
    ),
)


def folded(name: DialectName, events: list[Json]) -> Json:
    fold = DIALECTS[name].fold()
    for event in events:
        fold.add(event)
    assert fold.ended
    return fold.document()


def streamed(name: DialectName, done: Completion) -> list[Json]:
    return [event.data for event in SCRIPTED[name].stream(done) if isinstance(event.data, dict)]


def essence(name: DialectName, document: Json) -> object:
    """What an answer says, without the differences that streaming makes to the frame around it."""
    if name == "gemini":
        (candidate,) = document["candidates"]  # type: ignore[misc]
        parts = candidate["content"]["parts"]  # type: ignore[has-type]
        return [part for part in parts if part.get("text") != ""]
    if name == "openai-chat":
        (choice,) = document["choices"]  # type: ignore[misc]
        said = {key: value for key, value in choice["message"].items() if value}  # type: ignore[has-type]
        return said, choice["finish_reason"]  # type: ignore[has-type]
    return document.get("content"), document.get("output"), document.get("stop_reason")


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=50)
@given(COMPLETIONS)
def test_a_stream_put_together_says_what_the_whole_answer_says(name: DialectName, done: Completion) -> None:
    whole = SCRIPTED[name].whole(done)
    together = folded(name, streamed(name, done))
    assert essence(name, together) == essence(name, whole)
    assert DIALECTS[name].tokens(together) == DIALECTS[name].tokens(whole)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=50)
@given(COMPLETIONS)
def test_an_answer_taken_apart_and_put_together_is_the_same(name: DialectName, done: Completion) -> None:
    whole = folded(name, streamed(name, done))
    again = [json.loads(event.data) for event in DIALECTS[name].unfold(whole) if event.data != "[DONE]"]
    assert folded(name, again) == whole


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_no_stream_however_broken_is_an_error(name: DialectName, data: st.DataObject) -> None:
    done = Completion("7", "m", "some text", "a thought", Call(Tool("bash"), "1", {"a": 1}))
    events = streamed(name, done)
    chosen = data.draw(st.lists(st.sampled_from(events), max_size=10))
    keys = sorted({key for event in events for key in event})
    spoiled = [
        {**event, data.draw(st.sampled_from(keys)): data.draw(JSON_VALUES)} if data.draw(st.booleans()) else event
        for event in chosen
    ]
    fold = DIALECTS[name].fold()
    for event in spoiled:
        fold.add(event, content=data.draw(st.booleans()))
    document = fold.document()
    DIALECTS[name].tokens(document)
    json.dumps(document)


def test_a_long_stream_keeps_its_usage_without_its_content() -> None:
    for name in NAMES:
        fold = DIALECTS[name].fold()
        for event in streamed(name, Completion("7", "m", "a text" * 50)):
            fold.add(event, content=False)
        document = fold.document()
        assert "a text" not in json.dumps(document)
        found = DIALECTS[name].tokens(document)
        assert found is not None
        assert found.input == 1001


USAGES: list[tuple[DialectName, Json, Tokens]] = [
    (
        "anthropic",
        {
            "usage": {
                "input_tokens": 10,
                "cache_read_input_tokens": 300,
                "cache_creation_input_tokens": 50,
                "cache_creation": {"ephemeral_1h_input_tokens": 20, "ephemeral_5m_input_tokens": 30},
                "output_tokens": 7,
                "server_tool_use": {"web_search_requests": 2},
            }
        },
        Tokens(360, 300, 50, 20, 7, 0, 2),
    ),
    (
        "openai-chat",
        {
            "usage": {
                "prompt_tokens": 100,
                "prompt_tokens_details": {"cached_tokens": 40},
                "completion_tokens": 30,
                "completion_tokens_details": {"reasoning_tokens": 20},
            }
        },
        Tokens(input=100, cached=40, output=30, reasoning=20),
    ),
    (
        "openai-chat",
        {"usage": {"prompt_tokens": 100, "prompt_cache_hit_tokens": 60, "completion_tokens": 3}},
        Tokens(input=100, cached=60, output=3),
    ),
    (
        "openai-responses",
        {
            "output": [{"type": "web_search_call"}],
            "usage": {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 40},
                "output_tokens": 30,
                "output_tokens_details": {"reasoning_tokens": 20},
            },
        },
        Tokens(input=100, cached=40, output=30, reasoning=20, web_searches=1),
    ),
    (
        "gemini",
        {
            "usageMetadata": {
                "promptTokenCount": 100,
                "cachedContentTokenCount": 40,
                "candidatesTokenCount": 10,
                "thoughtsTokenCount": 20,
            }
        },
        Tokens(input=100, cached=40, output=30, reasoning=20),
    ),
]


@pytest.mark.parametrize(("name", "document", "tokens"), USAGES)
def test_usage_is_counted_the_same_way_in_every_dialect(name: DialectName, document: Json, tokens: Tokens) -> None:
    assert DIALECTS[name].tokens(document) == tokens


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_without_usage_has_unknown_usage(name: DialectName) -> None:
    documents: list[Json] = [{}, {"usage": None}, {"usage": {}}, {"usageMetadata": {}}, {"usage": 5}]
    for document in documents:
        assert DIALECTS[name].tokens(document) is None


def test_a_broken_tool_call_keeps_the_text_that_came() -> None:
    events = streamed("anthropic", Completion("7", "m", call=Call(Tool("bash"), "1", {"command": "ls -la /somewhere"})))
    fold = DIALECTS["anthropic"].fold()
    for event in events[:4]:
        fold.add(event)
    (block,) = fold.document()["content"]  # type: ignore[misc]
    assert isinstance(block["input"], str)  # type: ignore[has-type]
    assert not fold.ended
