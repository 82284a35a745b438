"""OpenAI Responses: `POST */responses`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchflow.testing.model import wire
from benchflow.testing.model.chat import CREATED, Chat
from benchflow.testing.model.wire import Question, Side, Sse, Tool, flat, get_object, objects, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.testing.model.wire import Completion, Json


class Responses:
    name = "responses"

    def read(self, body: Json) -> Question:
        side = Side()
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else objects(given)
        for item in items:
            kind = str(item.get("type", "message"))
            if kind.endswith("_output"):
                side.user(None)
            elif kind.endswith("_call"):
                side.model(called=True)
            elif item.get("role") == "assistant":
                side.model(flat(item.get("content")))
            elif item.get("role") == "user":
                side.user(flat(item.get("content")))
        return Question(
            model=str(body.get("model", "")),
            stream=bool(body.get("stream")),
            tools=tuple(_tools(objects(body.get("tools")))),
            prompts=tuple(side.prompts),
            history=side.replies(),
            json_schema=get_object(body, "text", "format", "schema") or None,
        )

    def whole(self, done: Completion) -> Json:
        return {
            "id": f"resp_{done.id}",
            "object": "response",
            "created_at": CREATED,
            "status": "completed",
            "model": done.model,
            "output": _items(done),
            "usage": _usage(),
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "temperature": 1.0,
            "top_p": 1.0,
        }

    def stream(self, done: Completion) -> Iterator[Sse]:
        full = self.whole(done)
        begun = {**full, "status": "in_progress", "output": [], "usage": None}
        events: list[tuple[str, Json]] = [
            ("response.created", {"response": begun}),
            ("response.in_progress", {"response": begun}),
        ]
        for index, item in enumerate(_items(done)):
            events += _item_events(index, item)
        events.append(("response.completed", {"response": full}))
        for number, (kind, fields) in enumerate(events):
            paced = kind == "response.output_text.delta"
            yield Sse({"type": kind, "sequence_number": number, **fields}, kind, paced)

    def count(self) -> Json:
        return {"input_tokens": wire.INPUT_TOKENS}

    def error(self, status: int, message: str) -> Json:
        return Chat().error(status, message)


def _tools(offered: list[Json], namespace: str | None = None) -> Iterator[Tool]:
    for tool in offered:
        name = str(tool.get("name", ""))
        match tool.get("type"):
            case "function":
                yield Tool(name, get_object(tool, "parameters"), namespace=namespace)
            case "custom":
                yield Tool(name, kind="custom", namespace=namespace)
            case "namespace":
                yield from _tools(objects(tool.get("tools")), name)


def _items(done: Completion) -> list[Json]:
    items: list[Json] = []
    if done.thought:
        summary = [{"type": "summary_text", "text": done.thought}]
        items.append({"type": "reasoning", "id": f"rs_{done.id}", "summary": summary, "encrypted_content": None})
    if done.text:
        content = [{"type": "output_text", "text": done.text, "annotations": []}]
        message: Json = {"type": "message", "id": f"msg_{done.id}", "role": "assistant", "status": "completed"}
        items.append({**message, "content": content})
    if done.call:
        call: Json = {"call_id": f"call_{done.call.id}", "name": done.call.tool.name, "status": "completed"}
        if done.call.tool.namespace:
            call["namespace"] = done.call.tool.namespace
        if done.call.tool.kind == "custom":
            items.append({"type": "custom_tool_call", "id": f"ctc_{done.id}", "input": done.call.text, **call})
        else:
            arguments = json.dumps(done.call.arguments)
            items.append({"type": "function_call", "id": f"fc_{done.id}", "arguments": arguments, **call})
    return items


def _item_events(index: int, item: Json) -> list[tuple[str, Json]]:
    at: Json = {"item_id": item["id"], "output_index": index}
    match item["type"]:
        case "message":
            parts = objects(item["content"])
            begun, inner = {**item, "status": "in_progress", "content": []}, _text_events(at, parts[0])
        case "reasoning":
            begun, inner = {**item, "summary": []}, _summary_events(at, objects(item["summary"])[0])
        case "function_call":
            begun = {**item, "arguments": "", "status": "in_progress"}
            inner = _argument_events(at, "response.function_call_arguments", "arguments", str(item["arguments"]))
        case _:
            begun = {**item, "input": "", "status": "in_progress"}
            inner = _argument_events(at, "response.custom_tool_call_input", "input", str(item["input"]))
    added = ("response.output_item.added", {"output_index": index, "item": begun})
    return [added, *inner, ("response.output_item.done", {"output_index": index, "item": item})]


def _text_events(at: Json, part: Json) -> list[tuple[str, Json]]:
    at = {**at, "content_index": 0}
    text = str(part["text"])
    return [
        ("response.content_part.added", {**at, "part": {**part, "text": ""}}),
        *(("response.output_text.delta", {**at, "delta": piece}) for piece in pieces(text)),
        ("response.output_text.done", {**at, "text": text}),
        ("response.content_part.done", {**at, "part": part}),
    ]


def _summary_events(at: Json, part: Json) -> list[tuple[str, Json]]:
    at = {**at, "summary_index": 0}
    text = str(part["text"])
    return [
        ("response.reasoning_summary_part.added", {**at, "part": {**part, "text": ""}}),
        *(("response.reasoning_summary_text.delta", {**at, "delta": piece}) for piece in pieces(text)),
        ("response.reasoning_summary_text.done", {**at, "text": text}),
        ("response.reasoning_summary_part.done", {**at, "part": part}),
    ]


def _argument_events(at: Json, kind: str, key: str, text: str) -> list[tuple[str, Json]]:
    deltas: list[tuple[str, Json]] = [(f"{kind}.delta", {**at, "delta": piece}) for piece in pieces(text)]
    return [*deltas, (f"{kind}.done", {**at, key: text})]


def _usage() -> Json:
    return {
        "input_tokens": wire.INPUT_TOKENS,
        "input_tokens_details": {"cached_tokens": wire.CACHED_TOKENS},
        "output_tokens": wire.OUTPUT_TOKENS,
        "output_tokens_details": {"reasoning_tokens": wire.REASONING_TOKENS},
        "total_tokens": wire.INPUT_TOKENS + wire.OUTPUT_TOKENS,
    }
