"""Anthropic Messages."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, cast

from benchflow.gateway.dialects.base import Pieces, Route, get, objects, place, text
from benchflow.gateway.sse import json_event
from benchflow.gateway.tokens import Tokens, count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.agent.spec import Dialect as DialectName
    from benchflow.gateway.dialects.base import Fold, Json
    from benchflow.gateway.sse import Event

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}

_STATUS = {kind: status for status, kind in _ERRORS.items()}

_MODELS = re.compile(r"(?:/v1)?/models(?:/(?P<model>[^/]+))?")


class Anthropic:
    name: DialectName = "anthropic"
    root = ""
    spent_status = 402

    def route(self, method: str, path: str) -> Route | None:
        if method == "POST" and path in ("/v1/messages", "/messages"):
            return Route(self, "generate", "v1/messages")
        if method == "POST" and path in ("/v1/messages/count_tokens", "/messages/count_tokens"):
            return Route(self, "count", "v1/messages/count_tokens")
        if method == "GET" and (found := _MODELS.fullmatch(path)):
            return Route(self, "models", "v1/models" + (f"/{found['model']}" if found["model"] else ""))
        return None

    def credential(self, key: str) -> tuple[str, str]:
        return "x-api-key", key

    def error(self, status: int, message: str) -> Json:
        kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}}

    def tokens(self, document: Json) -> Tokens | None:
        usage = document.get("usage")
        if not isinstance(usage, dict) or "output_tokens" not in usage:
            return None
        cached, written = count(usage.get("cache_read_input_tokens")), count(usage.get("cache_creation_input_tokens"))
        return Tokens(
            input=count(usage.get("input_tokens")) + cached + written,
            cached=cached,
            cache_write=written,
            cache_write_1h=min(written, count(get(usage, "cache_creation", "ephemeral_1h_input_tokens"))),
            output=count(usage.get("output_tokens")),
            reasoning=count(get(usage, "output_tokens_details", "thinking_tokens")),
            web_searches=count(get(usage, "server_tool_use", "web_search_requests")),
        )

    def fold(self) -> Fold:
        return _MessageFold()

    def unfold(self, document: Json) -> Iterator[Event]:
        def event(kind: str, **fields: object) -> Event:
            return json_event({"type": kind, **fields}, kind)

        usage = cast("Json", document.get("usage") or {})
        yield event("message_start", message={**document, "content": [], "stop_reason": None, "stop_sequence": None})
        for index, block in enumerate(objects(document.get("content"))):
            yield event("content_block_start", index=index, content_block=_empty(block))
            for delta in _deltas(block):
                yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
        ended = {key: document.get(key) for key in ("stop_reason", "stop_sequence")}
        yield event("message_delta", delta=ended, usage=usage)
        yield event("message_stop")


def status_of(error: Json) -> int:
    """The HTTP status of an error that came as an event of a stream."""
    return _STATUS.get(text(error, "error", "type"), 500)


_GROWING = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


class _MessageFold:
    def __init__(self) -> None:
        self.ended = False
        self._message: Json = {}
        self._usage: Json = {}
        self._blocks: dict[int, Json] = {}
        self._pieces = Pieces()

    def add(self, event: Json, *, content: bool = True) -> None:
        match event.get("type"):
            case "message_start" if isinstance(message := event.get("message"), dict):
                self._message = dict(message)
                self._note_usage(message)
            case "content_block_start" if content and isinstance(block := event.get("content_block"), dict):
                self._blocks[place(event.get("index"))] = dict(block)
            case "content_block_delta" if content and isinstance(delta := event.get("delta"), dict):
                self._delta(place(event.get("index")), delta)
            case "message_delta":
                if isinstance(delta := event.get("delta"), dict):
                    self._message |= delta
                self._note_usage(event)
            case "message_stop":
                self.ended = True
            case "error":
                self._message["error"] = event.get("error")

    def _note_usage(self, holder: Json) -> None:
        """The numbers of a stream are running totals, later ones over earlier ones."""
        if isinstance(usage := holder.get("usage"), dict):
            self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _delta(self, index: int, delta: Json) -> None:
        kind = text(delta, "type")
        block = self._blocks.setdefault(index, {})
        if field := _GROWING.get(kind):
            self._pieces.add((index, field), delta.get(field))
        elif kind == "signature_delta":
            block["signature"] = text(block, "signature") + text(delta, "signature")
        elif kind == "citations_delta":
            cited = block.get("citations")
            block["citations"] = [*(cited if isinstance(cited, list) else []), delta.get("citation")]

    def document(self) -> Json:
        blocks = {index: dict(block) for index, block in self._blocks.items()}
        for (index, field), grown in self._pieces.join().items():
            block = blocks[cast("int", index)]
            if field == "partial_json":
                block["input"] = _arguments(grown) if grown else block.get("input", {})
            else:
                block[cast("str", field)] = text(block, cast("str", field)) + grown
        document = {**self._message, "content": [blocks[index] for index in sorted(blocks)]}
        return {**document, "usage": self._usage} if self._usage else document


def _arguments(grown: str) -> object:
    """A tool's input; a stream that broke within it leaves the text that came."""
    try:
        return json.loads(grown)
    except (ValueError, RecursionError):
        return grown


def _empty(block: Json) -> Json:
    """A block as its first event shows it: without what its deltas will bring."""
    bare = {key: value for key, value in block.items() if key != "citations"}
    match block.get("type"):
        case "text":
            return {**bare, "text": ""}
        case "thinking":
            return {**bare, "thinking": "", "signature": ""}
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            return {**bare, "input": {}}
        case _:
            return block


def _deltas(block: Json) -> Iterator[Json]:
    match block.get("type"):
        case "text":
            yield {"type": "text_delta", "text": text(block, "text")}
            for cited in objects(block.get("citations")):
                yield {"type": "citations_delta", "citation": cited}
        case "thinking":
            yield {"type": "thinking_delta", "thinking": text(block, "thinking")}
            yield {"type": "signature_delta", "signature": text(block, "signature")}
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            yield {"type": "input_json_delta", "partial_json": json.dumps(block.get("input", {}))}
        case _:
            return
