"""OpenAI Responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchflow.gateway.dialects import openai
from benchflow.gateway.dialects.base import Route, get, objects, place, text
from benchflow.gateway.sse import json_event
from benchflow.gateway.tokens import Tokens, count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.agent.spec import Dialect as DialectName
    from benchflow.gateway.dialects.base import Fold, Json, Operation
    from benchflow.gateway.sse import Event

_PATHS: dict[str, Operation] = {
    "responses": "generate",
    "responses/compact": "generate",
    "responses/input_tokens": "count",
}

_ENDS = ("response.completed", "response.incomplete", "response.failed")


class Responses:
    name: DialectName = "openai-responses"
    root = "/v1"
    spent_status = 400  # its best-known client tries again at 402

    def route(self, method: str, path: str) -> Route | None:
        tail = path.removeprefix("/v1").removeprefix("/")
        if method == "POST" and tail in _PATHS:
            return Route(self, _PATHS[tail], tail, stream=None if tail == "responses" else False)
        return openai.models_route(self, method, path)

    def credential(self, key: str) -> tuple[str, str]:
        return openai.credential(key)

    def error(self, status: int, message: str) -> Json:
        return openai.error(status, message)

    def tokens(self, document: Json) -> Tokens | None:
        usage = document.get("usage")
        if not isinstance(usage, dict) or "input_tokens" not in usage:
            return None
        searches = [item for item in objects(document.get("output")) if item.get("type") == "web_search_call"]
        return Tokens(
            input=count(usage.get("input_tokens")),
            cached=count(get(usage, "input_tokens_details", "cached_tokens")),
            cache_write=count(get(usage, "input_tokens_details", "cache_write_tokens")),
            output=count(usage.get("output_tokens")),
            reasoning=count(get(usage, "output_tokens_details", "reasoning_tokens")),
            web_searches=len(searches),
        )

    def fold(self) -> Fold:
        return _ResponseFold()

    def unfold(self, document: Json) -> Iterator[Event]:
        begun = {**document, "status": "in_progress", "output": [], "usage": None}
        events: list[Json] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
        ]
        for index, item in enumerate(objects(document.get("output"))):
            events += _item_events(index, item)
        status = text(document, "status")
        ended = f"response.{status}" if f"response.{status}" in _ENDS else "response.completed"
        events.append({"type": ended, "response": document})
        for number, event in enumerate(events):
            yield json_event({**event, "sequence_number": number}, str(event["type"]))


def _item_events(index: int, item: Json) -> Iterator[Json]:
    at: Json = {"output_index": index, "item_id": item.get("id")}
    yield {"type": "response.output_item.added", "output_index": index, "item": _begun(item)}
    for part_index, part in enumerate(objects(item.get("content"))):
        if item.get("type") == "message" and part.get("type") == "output_text":
            yield from _text_events({**at, "content_index": part_index}, part)
    for part_index, part in enumerate(objects(item.get("summary"))):
        yield from _summary_events({**at, "summary_index": part_index}, part)
    for kind, field, name in (
        ("function_call", "arguments", "function_call_arguments"),
        ("custom_tool_call", "input", "custom_tool_call_input"),
    ):
        if item.get("type") == kind:
            yield {"type": f"response.{name}.delta", **at, "delta": text(item, field)}
            yield {"type": f"response.{name}.done", **at, field: text(item, field)}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _begun(item: Json) -> Json:
    """An item as its first event shows it: without what comes in pieces."""
    empty: Json = {"content": [], "summary": [], "arguments": "", "input": ""}
    bare = {
        key: empty[key] if key in empty and type(value) is type(empty[key]) else value for key, value in item.items()
    }
    return {**bare, "status": "in_progress"} if "status" in item else bare


def _text_events(at: Json, part: Json) -> Iterator[Json]:
    said = text(part, "text")
    yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
    yield {"type": "response.output_text.delta", **at, "delta": said, "logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": said, "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": part}


def _summary_events(at: Json, part: Json) -> Iterator[Json]:
    said = text(part, "text")
    yield {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}}
    yield {"type": "response.reasoning_summary_text.delta", **at, "delta": said}
    yield {"type": "response.reasoning_summary_text.done", **at, "text": said}
    yield {"type": "response.reasoning_summary_part.done", **at, "part": part}


class _ResponseFold:
    """The last event carries the whole answer; until it comes, the finished items are what is known of it."""

    def __init__(self) -> None:
        self.ended = False
        self._response: Json = {}
        self._items: dict[int, Json] = {}

    def add(self, event: Json, *, content: bool = True) -> None:
        kind, response = text(event, "type"), event.get("response")
        if isinstance(response, dict):
            bare = {**response, "output": []}
            self._response = response if content else bare
            self.ended = self.ended or kind in _ENDS
        elif kind == "response.output_item.done" and content and isinstance(item := event.get("item"), dict):
            self._items[place(event.get("output_index"))] = item
        elif kind == "error":
            self._response = {**self._response, "error": event.get("error", event)}

    def document(self) -> Json:
        # Some providers leave the output out of the last event.
        if not self._items or self._response.get("output"):
            return self._response
        return {**self._response, "output": [self._items[index] for index in sorted(self._items)]}
