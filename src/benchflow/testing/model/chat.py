"""OpenAI Chat Completions: `POST */chat/completions`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchflow.testing.model import wire
from benchflow.testing.model.wire import Question, Side, Sse, Tool, flat, get, get_object, objects, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.testing.model.wire import Completion, Json

CREATED = 1_750_000_000


class Chat:
    name = "chat"

    def read(self, body: Json) -> Question:
        side = Side()
        for message in objects(body.get("messages")):
            match message.get("role"):
                case "assistant":
                    side.model(flat(message.get("content")), called=bool(message.get("tool_calls")))
                case "user":
                    side.user(flat(message.get("content")))
                case "tool" | "function":
                    side.user(None)
        tools = tuple(
            Tool(str(get(tool, "function", "name")), get_object(tool, "function", "parameters"))
            for tool in objects(body.get("tools"))
            if get(tool, "function", "name")
        )
        return Question(
            model=str(body.get("model", "")),
            stream=bool(body.get("stream")),
            tools=tools,
            prompts=tuple(side.prompts),
            history=side.replies(),
            json_schema=get_object(body, "response_format", "json_schema", "schema") or None,
            usage=bool(get(body, "stream_options", "include_usage")),
        )

    def whole(self, done: Completion) -> Json:
        message: Json = {"role": "assistant", "content": done.text or None}
        if done.thought:
            message["reasoning_content"] = done.thought
        if done.call:
            message["tool_calls"] = [_call(done)]
        choice = {"index": 0, "message": message, "finish_reason": _reason(done), "logprobs": None}
        return {**_base(done, "chat.completion"), "choices": [choice], "usage": _usage()}

    def stream(self, done: Completion) -> Iterator[Sse]:
        base = _base(done, "chat.completion.chunk")

        def chunk(delta: Json, finish: str | None = None, paced: bool = False) -> Sse:
            return Sse({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}, paced=paced)

        yield chunk({"role": "assistant", "content": ""})
        for piece in pieces(done.thought):
            yield chunk({"reasoning_content": piece})
        for piece in pieces(done.text):
            yield chunk({"content": piece}, paced=True)
        if done.call:
            call = _call(done)
            name = {"name": done.call.tool.name, "arguments": ""}
            yield chunk({"tool_calls": [{"index": 0, "id": call["id"], "type": "function", "function": name}]})
            for piece in pieces(json.dumps(done.call.arguments)):
                yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
        yield chunk({}, _reason(done))
        if done.usage:
            yield Sse({**base, "choices": [], "usage": _usage()})
        yield Sse("[DONE]")

    def count(self) -> Json:
        return {"input_tokens": wire.INPUT_TOKENS}

    def error(self, status: int, message: str) -> Json:
        kind = {401: "invalid_api_key", 429: "rate_limit_exceeded"}.get(status, "server_error")
        return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def _base(done: Completion, kind: str) -> Json:
    return {"id": f"chatcmpl-{done.id}", "object": kind, "created": CREATED, "model": done.model}


def _reason(done: Completion) -> str:
    return "tool_calls" if done.call else "stop"


def _call(done: Completion) -> Json:
    assert done.call is not None
    function = {"name": done.call.tool.name, "arguments": json.dumps(done.call.arguments)}
    return {"id": f"call_{done.call.id}", "type": "function", "function": function}


def _usage() -> Json:
    return {
        "prompt_tokens": wire.INPUT_TOKENS,
        "completion_tokens": wire.OUTPUT_TOKENS,
        "total_tokens": wire.INPUT_TOKENS + wire.OUTPUT_TOKENS,
        "prompt_tokens_details": {"cached_tokens": wire.CACHED_TOKENS},
        "completion_tokens_details": {"reasoning_tokens": wire.REASONING_TOKENS},
    }
