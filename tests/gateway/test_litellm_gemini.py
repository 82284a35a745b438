"""Gemini's requests in the terms of OpenAI's chat, and its answers back."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.gateway.dialects.gemini import Gemini
from benchflow.gateway.litellm_bridge.gemini import from_chat, stream_from_chat, to_chat
from benchflow.gateway.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchflow.gateway.dialects.base import Json

PIXEL = "iVBORw0KGgo="
SHELL = {"type": "OBJECT", "properties": {"type": {"type": "STRING"}}, "required": ["type"]}


def user(*parts: Json) -> Json:
    return {"role": "user", "parts": list(parts)}


def model(*parts: Json) -> Json:
    return {"role": "model", "parts": list(parts)}


def called(name: str, **more: object) -> Json:
    return {"functionCall": {"name": name, "args": {"n": 1}, **more}}


def gave(name: str, **more: object) -> Json:
    return {"functionResponse": {"name": name, "response": {"output": name}, **more}}


def messages(*contents: Json) -> list[Any]:
    made: list[Any] = to_chat({"contents": list(contents)})["messages"]
    return made


def test_every_call_of_a_tool_has_an_id_of_its_own_and_its_result_finds_it() -> None:
    made = messages(
        user({"text": "go"}),
        model({"text": "hm", "thought": True}, {"text": "ok"}, called("bash"), called("bash")),
        user(gave("bash"), gave("bash")),
        model(called("bash", id="b"), called("read", id="r")),
        user(gave("read", id="r"), gave("bash", id="b")),
    )
    assert [one["role"] for one in made] == ["user", "assistant", "tool", "tool", "assistant", "tool", "tool"]
    ids = [call["id"] for one in made for call in one.get("tool_calls", ())]
    assert len(set(ids)) == len(ids) == 4
    assert [one["tool_call_id"] for one in made if one["role"] == "tool"] == [ids[0], ids[1], ids[3], ids[2]]
    assert made[1]["content"] == "ok"


def test_instructions_images_and_files_are_all_there() -> None:
    pdf: Json = {"inline_data": {"mime_type": "application/pdf", "data": "JVBERi0="}}
    image: Json = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    made = to_chat(
        {
            "systemInstruction": {"parts": [{"text": "Be brief."}, {"text": "Be kind."}]},
            "contents": [user({"text": "look"}, image, pdf), user(gave("unknown", parts=[image]))],
        }
    )["messages"]
    assert made[0] == {"role": "system", "content": "Be brief.\n\nBe kind."}
    shown = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    assert made[1]["content"][:2] == [{"type": "text", "text": "look"}, shown]
    assert made[1]["content"][2]["file"] == {"file_data": "data:application/pdf;base64,JVBERi0="}
    assert made[2]["content"][1] == shown


def test_nothing_is_fetched_by_its_address() -> None:
    with pytest.raises(Refusal, match="send what is in it"):
        messages(user({"fileData": {"fileUri": "http://169.254.169.254/"}}))


def test_tools_and_parameters() -> None:
    declared = [{"name": "bash", "parameters": SHELL}, {"name": "read", "parametersJsonSchema": {"type": "object"}}]
    made = to_chat(
        {
            "contents": [],
            "tools": [{"functionDeclarations": declared}, {"googleSearch": {}}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
            "generationConfig": {
                "topP": 0.5,
                "maxOutputTokens": 9,
                "stopSequences": ["."],
                "thinkingConfig": {"thinkingBudget": 1024},
                "responseMimeType": "application/json",
                "responseSchema": SHELL,
            },
        }
    )
    bash, read = (tool["function"] for tool in made["tools"])
    assert bash["parameters"]["properties"] == {"type": {"type": "string"}}
    assert read["parameters"] == {"type": "object"}
    assert (made["tool_choice"], made["top_p"], made["max_tokens"], made["stop"]) == ("required", 0.5, 9, ["."])
    assert made["reasoning_effort"] == "low"
    assert made["response_format"]["json_schema"]["schema"]["type"] == "object"


USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "prompt_tokens_details": {"cached_tokens": 60},
    "completion_tokens_details": {"reasoning_tokens": 5},
}


def chunk(delta: Json, **more: object) -> Json:
    return {"id": "1", "model": "m", "choices": [{"index": 0, "delta": delta, **more}]}


async def test_a_stream_says_what_the_whole_answer_says() -> None:
    def part(index: int, **function: str) -> Json:
        return {"tool_calls": [{"index": index, "function": function, **({"id": f"i{index}"} if function else {})}]}

    arguments = json.dumps({"n": 1})
    chunks: list[Json] = [
        chunk({"role": "assistant", "reasoning_content": "hm"}),
        chunk({"content": "I "}),
        chunk({"content": "run."}),
        chunk(part(0, name="bash", arguments=arguments[:3])),
        chunk(part(1, name="read", arguments="")),
        chunk(part(0, arguments=arguments[3:])),
        chunk({}, finish_reason="tool_calls"),
        {"id": "1", "model": "m", "choices": [], "usage": USAGE},
    ]

    async def given() -> AsyncIterator[Json]:
        for one in chunks:
            yield one

    fold = Gemini().fold()
    async for event in stream_from_chat(given()):
        fold.add(event)
    calls = [
        {"id": "i0", "type": "function", "function": {"name": "bash", "arguments": arguments}},
        {"id": "i1", "type": "function", "function": {"name": "read", "arguments": ""}},
    ]
    message = {"reasoning_content": "hm", "content": "I run.", "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    whole = from_chat({"id": "1", "model": "m", "choices": [choice], "usage": USAGE})
    assert fold.ended
    assert fold.document() == whole
    tokens = Gemini().tokens(whole)
    assert tokens is not None
    assert (tokens.input, tokens.cached, tokens.output, tokens.reasoning) == (100, 60, 20, 5)


NAMES = ["contents", "parts", "role", "text", "functionCall", "functionResponse", "id", "name", "tools", "inlineData"]
NAMES += ["generationConfig", "functionDeclarations", "parameters", "systemInstruction", "type", "thinkingConfig"]
anything = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.just("model"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), anything))
def test_no_request_however_strange_is_more_than_a_refusal(body: Json) -> None:
    with suppress(Refusal):
        json.dumps(to_chat(body))
