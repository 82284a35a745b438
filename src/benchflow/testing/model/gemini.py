"""Gemini: `POST */models/MODEL:generateContent`, `:streamGenerateContent` and `:countTokens`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchflow.testing.model import wire
from benchflow.testing.model.wire import Question, Side, Sse, Tool, flat, get, get_object, objects, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.testing.model.wire import Completion, Json

_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


class Gemini:
    name = "gemini"

    def read(self, body: Json) -> Question:
        """The model and whether to stream are in the path: the server puts them into the body."""
        side = Side()
        for content in objects(body.get("contents")):
            for part in objects(content.get("parts")):
                text = "" if part.get("thought") else flat(part.get("text"))
                if content.get("role") == "model":
                    side.model(text, called="functionCall" in part)
                else:
                    side.user(None if "functionResponse" in part else text)
        config = get_object(body, "generationConfig")
        schema = get(config, "responseJsonSchema") or get(config, "responseSchema")
        return Question(
            model=str(body.get("model", "")),
            stream=bool(body.get("stream")),
            tools=tuple(_tools(objects(body.get("tools")))),
            prompts=tuple(side.prompts),
            history=side.replies(),
            json_schema=schema if isinstance(schema, dict) else None,
        )

    def whole(self, done: Completion) -> Json:
        return _chunk(done, _parts(done), last=True)

    def stream(self, done: Completion) -> Iterator[Sse]:
        if done.thought:  # never cut: each of these is a summary of its own
            yield Sse(_chunk(done, [{"text": done.thought, "thought": True}]))
        for piece in pieces(done.text):
            yield Sse(_chunk(done, [{"text": piece}]), paced=True)
        yield Sse(_chunk(done, [_call(done)] if done.call else [{"text": ""}], last=True))

    def count(self) -> Json:
        return {"totalTokens": wire.INPUT_TOKENS}

    def error(self, status: int, message: str) -> Json:
        return {"error": {"code": status, "message": message, "status": _STATUS.get(status, "INTERNAL")}}


def _tools(offered: list[Json]) -> Iterator[Tool]:
    for holder in offered:
        declared = holder.get("functionDeclarations") or holder.get("function_declarations")
        for function in objects(declared):
            schema = get_object(function, "parametersJsonSchema") or get_object(function, "parameters")
            yield Tool(str(function.get("name", "")), schema)


def _parts(done: Completion) -> list[Json]:
    parts: list[Json] = []
    if done.thought:
        parts.append({"text": done.thought, "thought": True})
    if done.text:
        parts.append({"text": done.text})
    if done.call:
        parts.append(_call(done))
    return parts


def _call(done: Completion) -> Json:
    assert done.call is not None
    return {"functionCall": {"id": done.call.id, "name": done.call.tool.name, "args": done.call.arguments}}


def _chunk(done: Completion, parts: list[Json], *, last: bool = False) -> Json:
    candidate: Json = {"content": {"parts": parts, "role": "model"}, "index": 0}
    chunk: Json = {"candidates": [candidate], "modelVersion": done.model, "responseId": done.id}
    if last:
        candidate["finishReason"] = "STOP"
        chunk["usageMetadata"] = _usage()
    return chunk


def _usage() -> Json:
    return {
        "promptTokenCount": wire.INPUT_TOKENS,
        "cachedContentTokenCount": wire.CACHED_TOKENS,
        "candidatesTokenCount": wire.OUTPUT_TOKENS,
        "thoughtsTokenCount": wire.REASONING_TOKENS,
        "totalTokenCount": wire.INPUT_TOKENS + wire.OUTPUT_TOKENS + wire.REASONING_TOKENS,
    }
