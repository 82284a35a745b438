"""Gemini generateContent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from benchflow.gateway.dialects.base import Route, objects, place
from benchflow.gateway.sse import json_event
from benchflow.gateway.tokens import Tokens, count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.agent.spec import Dialect as DialectName
    from benchflow.gateway.dialects.base import Fold, Json
    from benchflow.gateway.sse import Event

_ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}

# Some clouds put versions behind their models: nova-lite-v1:0
_CALL = re.compile(
    r"/(?P<version>v1|v1beta|v1alpha)/models/(?P<model>[^/:]+(?::[0-9]\w*)*):"
    r"(?P<verb>generateContent|streamGenerateContent|countTokens)"
)
_MODELS = re.compile(r"/(?P<version>v1|v1beta|v1alpha)/models(?P<model>(?:/[^/:]+)?)")


class Gemini:
    name: DialectName = "gemini"
    root = ""
    spent_status = 400  # what the service itself says without billing, and clients do not try again

    def route(self, method: str, path: str) -> Route | None:
        if method == "POST" and (call := _CALL.fullmatch(path)):
            verb = call["verb"]
            operation = "count" if verb == "countTokens" else "generate"
            stream = verb == "streamGenerateContent"
            return Route(self, operation, path.removeprefix("/"), call["model"], stream)  # type: ignore[arg-type]
        if method == "GET" and _MODELS.fullmatch(path):
            return Route(self, "models", path.removeprefix("/"))
        return None

    def credential(self, key: str) -> tuple[str, str]:
        return "x-goog-api-key", key

    def error(self, status: int, message: str) -> Json:
        return {"error": {"code": status, "message": message, "status": _ERRORS.get(status, "INTERNAL")}}

    def tokens(self, document: Json) -> Tokens | None:
        usage = document.get("usageMetadata")
        if not isinstance(usage, dict) or "promptTokenCount" not in usage:
            return None
        thoughts = count(usage.get("thoughtsTokenCount"))
        return Tokens(
            input=count(usage.get("promptTokenCount")) + count(usage.get("toolUsePromptTokenCount")),
            cached=count(usage.get("cachedContentTokenCount")),
            output=count(usage.get("candidatesTokenCount")) + thoughts,
            reasoning=thoughts,
        )

    def fold(self) -> Fold:
        return _CandidateFold()

    def unfold(self, document: Json) -> Iterator[Event]:
        yield json_event(document)


class _CandidateFold:
    def __init__(self) -> None:
        self.ended = False
        self._head: Json = {}
        self._candidates: dict[int, Json] = {}
        self._parts: dict[int, list[Json]] = {}
        self._grown: dict[int, list[str]] = {}
        self._content: dict[int, Json] = {}

    def add(self, event: Json, *, content: bool = True) -> None:
        self._head |= {key: value for key, value in event.items() if key != "candidates"}
        for candidate in objects(event.get("candidates")):
            index = place(candidate.get("index"))
            kept = self._candidates.setdefault(index, {})
            kept |= {key: value for key, value in candidate.items() if key != "content"}
            self.ended = self.ended or candidate.get("finishReason") is not None
            if content and isinstance(said := candidate.get("content"), dict):
                self._content.setdefault(index, {}).update({k: v for k, v in said.items() if k != "parts"})
                for part in objects(said.get("parts")):
                    self._part(index, part)

    def _part(self, index: int, part: Json) -> None:
        parts, grown = self._parts.setdefault(index, []), self._grown.setdefault(index, [])
        if parts and _joins(parts[-1], part):
            grown.append(cast("str", part["text"]))
            return
        self._settle(index)
        parts.append(dict(part))

    def _settle(self, index: int) -> None:
        """Put the pieces of the last text together: no more will come."""
        if grown := self._grown.get(index):
            last = self._parts[index][-1]
            last["text"] = cast("str", last["text"]) + "".join(grown)
            grown.clear()

    def document(self) -> Json:
        candidates = []
        for index in sorted(self._candidates):
            self._settle(index)
            content = {**self._content.get(index, {}), "parts": self._parts.get(index, [])}
            shown = {"content": content} if index in self._content else {}
            candidates.append({**shown, **self._candidates[index]})
        return {"candidates": candidates, **self._head} if candidates else dict(self._head)


def _joins(last: Json, part: Json) -> bool:
    """Whether two parts are pieces of one text: nothing but text, both thought or both not."""
    plain = all(set(one) <= {"text", "thought"} and isinstance(one.get("text"), str) for one in (last, part))
    return plain and last.get("thought", False) == part.get("thought", False)
