"""OpenAI Chat Completions, which most other providers speak as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from benchflow.gateway.dialects import openai
from benchflow.gateway.dialects.base import Pieces, Route, get, objects, place
from benchflow.gateway.sse import Event, json_event
from benchflow.gateway.tokens import Tokens, count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.agent.spec import Dialect as DialectName
    from benchflow.gateway.dialects.base import Fold, Json


class Chat:
    name: DialectName = "openai-chat"
    root = "/v1"
    spent_status = 402

    def route(self, method: str, path: str) -> Route | None:
        if method == "POST" and path in ("/v1/chat/completions", "/chat/completions"):
            return Route(self, "generate", "chat/completions")
        return openai.models_route(self, method, path)

    def credential(self, key: str) -> tuple[str, str]:
        return openai.credential(key)

    def error(self, status: int, message: str) -> Json:
        return openai.error(status, message)

    def tokens(self, document: Json) -> Tokens | None:
        usage = document.get("usage")
        if not isinstance(usage, dict) or "prompt_tokens" not in usage:
            return None
        # DeepSeek and Moonshot have names of their own for the same number.
        cached = (
            get(usage, "prompt_tokens_details", "cached_tokens")
            or usage.get("prompt_cache_hit_tokens")
            or usage.get("cached_tokens")
        )
        return Tokens(
            input=count(usage.get("prompt_tokens")),
            cached=count(cached),
            cache_write=count(get(usage, "prompt_tokens_details", "cache_write_tokens")),
            output=count(usage.get("completion_tokens")),
            reasoning=count(get(usage, "completion_tokens_details", "reasoning_tokens")),
        )

    def fold(self) -> Fold:
        return _ChatFold()

    def unfold(self, document: Json) -> Iterator[Event]:
        base = {key: value for key, value in document.items() if key not in ("choices", "usage", "object")}
        base["object"] = "chat.completion.chunk"
        for choice in objects(document.get("choices")):
            index = place(choice.get("index"))
            yield json_event({**base, "choices": [{"index": index, "delta": _delta(choice), "finish_reason": None}]})
            rest = {key: value for key, value in choice.items() if key not in ("message", "index")}
            yield json_event({**base, "choices": [{"index": index, "delta": {}, **rest}]})
        if document.get("usage") is not None:
            yield json_event({**base, "choices": [], "usage": document["usage"]})
        yield Event("[DONE]")


def _delta(choice: Json) -> Json:
    message = dict(cast("Json", choice.get("message") or {}))
    if calls := objects(message.get("tool_calls")):
        message["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
    return message


class _ChatFold:
    def __init__(self) -> None:
        self.ended = False
        self._head: Json = {}
        self._choices: dict[int, Json] = {}
        self._messages: dict[int, Json] = {}
        self._calls: dict[tuple[int, int], Json] = {}
        self._pieces = Pieces()

    def add(self, event: Json, *, content: bool = True) -> None:
        for key, value in event.items():
            if key != "choices" and value is not None:
                self._head[key] = value
        for choice in objects(event.get("choices")):
            index = place(choice.get("index"))
            kept = self._choices.setdefault(index, {"index": index, "finish_reason": None})
            kept |= {key: value for key, value in choice.items() if key != "delta" and value is not None}
            self.ended = self.ended or choice.get("finish_reason") is not None
            if content and isinstance(delta := choice.get("delta"), dict):
                self._delta(index, delta)

    def _delta(self, index: int, delta: Json) -> None:
        message = self._messages.setdefault(index, {})
        for key, value in delta.items():
            if key == "tool_calls":
                for call in objects(value):
                    self._call(index, call)
            elif key != "role" and isinstance(value, str):
                self._pieces.add((index, key), value)
            elif isinstance(value, list):
                before = message.get(key)
                message[key] = [*before, *value] if isinstance(before, list) else value
            elif value is not None or key not in message:
                message[key] = value

    def _call(self, index: int, call: Json) -> None:
        number = place(call.get("index"))
        kept = self._calls.setdefault((index, number), {})
        kept |= {key: value for key, value in call.items() if key not in ("index", "function") and value is not None}
        if isinstance(function := call.get("function"), dict):
            for key, value in function.items():
                self._pieces.add((index, number, key), value)

    def document(self) -> Json:
        messages = {index: dict(message) for index, message in self._messages.items()}
        calls = {where: dict(call) for where, call in self._calls.items()}
        for where, grown in self._pieces.join().items():
            if len(where) == 2:
                messages[cast("int", where[0])][cast("str", where[1])] = grown
            else:
                call = calls[cast("tuple[int, int]", where[:2])]
                call["function"] = {**cast("Json", call.get("function") or {}), cast("str", where[2]): grown}
        for index, number in sorted(calls):
            made = cast("list[Json]", messages[index].setdefault("tool_calls", []))
            made.append(calls[index, number])
        choices = [{**self._choices[i], "message": messages.get(i, {})} for i in sorted(self._choices)]
        return {**self._head, "object": "chat.completion", "choices": choices}
