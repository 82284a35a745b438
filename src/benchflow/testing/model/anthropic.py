"""Anthropic Messages: `POST */messages` and `*/messages/count_tokens`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchflow.testing.model import wire
from benchflow.testing.model.wire import Question, Side, Sse, Tool, flat, get, get_object, objects, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.testing.model.wire import Completion, Json

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class Anthropic:
    name = "anthropic"

    def read(self, body: Json) -> Question:
        side = Side()
        for message in objects(body.get("messages")):
            content = message.get("content")
            blocks = objects(content) if isinstance(content, list) else [{"type": "text", "text": content}]
            for block in blocks:
                if message.get("role") == "assistant":
                    side.model(flat(block.get("text")), called=block.get("type") == "tool_use")
                else:
                    side.user(None if block.get("type") == "tool_result" else flat(block.get("text")))
        tools = tuple(
            Tool(str(tool["name"]), get_object(tool, "input_schema"))
            for tool in objects(body.get("tools"))
            if "name" in tool and "input_schema" in tool
        )
        return Question(
            model=str(body.get("model", "")),
            stream=bool(body.get("stream")),
            tools=tools,
            prompts=tuple(side.prompts),
            history=side.replies(),
            json_schema=get_object(body, "output_config", "format", "schema") or None,
            thinking=get(body, "thinking", "type") not in (None, "disabled"),
        )

    def whole(self, done: Completion) -> Json:
        return {**_message(done), "content": _blocks(done), "stop_reason": _reason(done), "usage": _usage()}

    def stream(self, done: Completion) -> Iterator[Sse]:
        def sse(kind: str, paced: bool = False, **fields: object) -> Sse:
            return Sse({"type": kind, **fields}, kind, paced)

        begun = {**_message(done), "content": [], "stop_reason": None, "usage": {**_usage(), "output_tokens": 1}}
        yield sse("message_start", message=begun)
        for index, block in enumerate(_blocks(done)):
            yield sse("content_block_start", index=index, content_block=_empty(block))
            for delta in _deltas(block):
                yield sse("content_block_delta", block["type"] == "text", index=index, delta=delta)
            yield sse("content_block_stop", index=index)
        ended = {"stop_reason": _reason(done), "stop_sequence": None}
        yield sse("message_delta", delta=ended, usage={"output_tokens": wire.OUTPUT_TOKENS})
        yield sse("message_stop")

    def count(self) -> Json:
        return {"input_tokens": wire.INPUT_TOKENS}

    def error(self, status: int, message: str) -> Json:
        return {"type": "error", "error": {"type": _ERRORS.get(status, "api_error"), "message": message}}


def _message(done: Completion) -> Json:
    return {"id": f"msg_{done.id}", "type": "message", "role": "assistant", "model": done.model, "stop_sequence": None}


def _reason(done: Completion) -> str:
    return "tool_use" if done.call else "end_turn"


def _usage() -> Json:
    return {
        "input_tokens": wire.INPUT_TOKENS - wire.CACHED_TOKENS,
        "cache_read_input_tokens": wire.CACHED_TOKENS,
        "cache_creation_input_tokens": 0,
        "output_tokens": wire.OUTPUT_TOKENS,
    }


def _blocks(done: Completion) -> list[Json]:
    blocks: list[Json] = []
    if done.thought:
        blocks.append({"type": "thinking", "thinking": done.thought, "signature": "c2NyaXB0ZWQ="})
    if done.text:
        blocks.append({"type": "text", "text": done.text})
    if done.call:
        call: Json = {"type": "tool_use", "id": f"toolu_{done.call.id}", "name": done.call.tool.name}
        blocks.append({**call, "input": done.call.arguments})
    return blocks


def _empty(block: Json) -> Json:
    match block["type"]:
        case "thinking":
            return {**block, "thinking": "", "signature": ""}
        case "text":
            return {**block, "text": ""}
        case _:
            return {**block, "input": {}}


def _deltas(block: Json) -> list[Json]:
    match block["type"]:
        case "thinking":
            thoughts: list[Json] = [
                {"type": "thinking_delta", "thinking": piece} for piece in pieces(str(block["thinking"]))
            ]
            return [*thoughts, {"type": "signature_delta", "signature": block["signature"]}]
        case "text":
            return [{"type": "text_delta", "text": piece} for piece in pieces(str(block["text"]))]
        case _:
            return [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(json.dumps(block["input"]))]
