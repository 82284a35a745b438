"""Gemini's requests as those of OpenAI's chat, and the answers back: pure functions.

LiteLLM's own way from Gemini gives all calls of a tool the same id, which providers refuse, leaves out images and all
but the first part of the instructions, and turns every error of a provider into one of its own.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from benchflow.gateway.dialects.base import get, objects, place, text
from benchflow.gateway.refusal import Refusal
from benchflow.gateway.tokens import count

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from benchflow.gateway.dialects.base import Json

LOW_BUDGET, MEDIUM_BUDGET = 2048, 12288
"""Tokens for thinking up to which that is a low, or a medium, effort."""

_PLAIN = {
    "temperature": "temperature",
    "topP": "top_p",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "seed": "seed",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}
"""Parameters that have only another name."""

_MODES = {"ANY": "required", "NONE": "none", "AUTO": "auto", "VALIDATED": "auto"}
_ENDS = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}


def to_chat(body: Json) -> dict[str, Any]:
    """What a request is in the terms of OpenAI's chat. Raises Refusal for what cannot be said in them."""
    config = _get(body, "generationConfig")
    made: dict[str, Any] = {"messages": _messages(body)}
    made |= {ours: value for theirs, ours in _PLAIN.items() if (value := _get(config, theirs)) is not None}
    if effort := _effort(_get(config, "thinkingConfig")):
        made["reasoning_effort"] = effort
    if _get(config, "responseMimeType") == "application/json":
        made["response_format"] = _format(config)
    if tools := [{"type": "function", "function": one} for one in _functions(body)]:
        made["tools"] = tools
        if mode := _MODES.get(text(_get(_get(body, "toolConfig"), "functionCallingConfig"), "mode")):
            made["tool_choice"] = mode
    return made


def _get(holder: object, name: str) -> object:
    """A value under its name, or under the same name with underscores, which Google takes as well."""
    if not isinstance(holder, dict):
        return None
    found = holder.get(name)
    return holder.get(re.sub(r"[A-Z]", lambda big: f"_{big[0].lower()}", name)) if found is None else found


# -- what is asked -------------------------------------------------------------------------------------------


def _messages(body: Json) -> list[Json]:
    calls = _Calls()
    system = "\n\n".join(text(part, "text") for part in objects(get(_get(body, "systemInstruction"), "parts")))
    messages: list[Json] = [{"role": "system", "content": system}] if system else []
    for content in objects(body.get("contents")):
        parts = objects(content.get("parts"))
        messages += [_said(parts, calls)] if content.get("role") == "model" else _heard(parts, calls)
    return messages


class _Calls:
    """Gives each call of a tool an id of its own, and finds it again for the tool's result."""

    def __init__(self) -> None:
        self._open: list[tuple[str, Json]] = []
        self._count = 0

    def begin(self, call: Json) -> str:
        self._count += 1
        ident = f"call_{self._count}"
        self._open.append((ident, call))
        return ident

    def end(self, result: Json) -> str | None:
        """The id of the call that this is the result of: the one of the same id, else the first of the same name."""
        same = [one for one in self._open if result.get("id") and one[1].get("id") == result["id"]]
        named = [one for one in self._open if one[1].get("name") == result.get("name")]
        if found := next(iter((*same, *named)), None):
            self._open.remove(found)
        return found[0] if found else None


def _said(parts: list[Json], calls: _Calls) -> Json:
    """A message of the model's. Its thoughts are not repeated to it."""
    words = "".join(text(part, "text") for part in parts if not part.get("thought"))
    made = [
        {
            "id": calls.begin(call),
            "type": "function",
            "function": {"name": text(call, "name"), "arguments": json.dumps(call.get("args") or {})},
        }
        for part in parts
        if isinstance(call := _get(part, "functionCall"), dict)
    ]
    return {"role": "assistant", "content": words or None, **({"tool_calls": made} if made else {})}


def _heard(parts: list[Json], calls: _Calls) -> Iterator[Json]:
    """Messages to the model: first what its tools gave, then what the user says and shows."""
    shown: list[Json] = []
    for part in parts:
        result = _get(part, "functionResponse")
        if not isinstance(result, dict):
            shown += _shown(part)
            continue
        gave = json.dumps(result.get("response") or {})
        ident = calls.end(result)
        if ident is None:
            shown.append({"type": "text", "text": f"{text(result, 'name')}: {gave}"})
        else:
            yield {"role": "tool", "tool_call_id": ident, "content": gave}
        shown += [one for inner in objects(result.get("parts")) for one in _shown(inner)]
    if shown:
        yield {"role": "user", "content": shown}


def _shown(part: Json) -> Iterator[Json]:
    if _get(part, "fileData") is not None:
        raise Refusal(400, "a file cannot be given by its address here: send what is in it")
    if words := text(part, "text"):
        yield {"type": "text", "text": words}
    data = _get(part, "inlineData")
    if isinstance(data, dict):
        kind = str(_get(data, "mimeType"))
        url = f"data:{kind};base64,{text(data, 'data')}"
        image = kind.startswith("image/")
        yield (
            {"type": "image_url", "image_url": {"url": url}} if image else {"type": "file", "file": {"file_data": url}}
        )


def _functions(body: Json) -> Iterator[Json]:
    for holder in objects(body.get("tools")):
        for one in objects(_get(holder, "functionDeclarations")):
            schema = _get(one, "parametersJsonSchema") or _schema(one.get("parameters"))
            told = {"parameters": schema or {"type": "object", "properties": {}}}
            yield {"name": text(one, "name"), "description": text(one, "description"), **told}


def _schema(value: object) -> object:
    """A schema whose types are written in small letters, as all others but Google write them."""
    if isinstance(value, list):
        return [_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {key: _schema(item) for key, item in value.items()}
    return {**made, "type": kind.lower()} if isinstance(kind := made.get("type"), str) else made


def _format(config: object) -> Json:
    schema = _get(config, "responseJsonSchema") or _schema(_get(config, "responseSchema"))
    if not isinstance(schema, dict):
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "response", "schema": schema}}


def _effort(thinking: object) -> str | None:
    """How much to think; None leaves it to the provider."""
    level, budget = _get(thinking, "thinkingLevel"), _get(thinking, "thinkingBudget")
    if isinstance(level, str):
        return level.lower()
    if not isinstance(budget, int) or budget <= 0:
        return None
    return "low" if budget <= LOW_BUDGET else "medium" if budget <= MEDIUM_BUDGET else "high"


# -- what is answered ----------------------------------------------------------------------------------------


def from_chat(answer: Json) -> Json:
    """A whole answer of OpenAI's chat as one of Gemini's."""
    candidates = []
    for choice in objects(answer.get("choices")):
        message = choice.get("message")
        parts = [*_words(message), *(_call(one) for one in objects(get(message, "tool_calls")))]
        candidates.append(_candidate(choice, parts, ended=True))
    return {**_head(answer), "candidates": candidates, "usageMetadata": _usage(answer.get("usage"))}


async def stream_from_chat(chunks: AsyncIterator[Json]) -> AsyncIterator[Json]:
    """A streamed answer: words as they come, calls of tools and the usage at the end, because Gemini's are whole."""
    head: Json = {}
    ends: dict[int, Json] = {}
    calls: dict[tuple[int, int], Json] = {}
    usage: object = None
    async for chunk in chunks:
        head, usage = _head(chunk) or head, chunk.get("usage") or usage
        for choice in objects(chunk.get("choices")):
            index = place(choice.get("index"))
            for call in objects(get(choice, "delta", "tool_calls")):
                _grow(calls.setdefault((index, place(call.get("index"))), {}), call)
            if parts := list(_words(choice.get("delta"))):
                yield {**head, "candidates": [_candidate(choice, parts)]}
            if choice.get("finish_reason"):
                ends[index] = choice
    candidates = [
        _candidate(end, [_call(call) for (at, _), call in sorted(calls.items()) if at == index], ended=True)
        for index, end in sorted(ends.items())
    ]
    yield {**head, "candidates": candidates, **({"usageMetadata": _usage(usage)} if usage else {})}


def _head(answer: Json) -> Json:
    return {name: answer[key] for key, name in (("model", "modelVersion"), ("id", "responseId")) if answer.get(key)}


def _words(said: object) -> Iterator[Json]:
    if thought := text(said, "reasoning_content"):
        yield {"text": thought, "thought": True}
    if words := text(said, "content"):
        yield {"text": words}


def _grow(call: Json, piece: Json) -> None:
    """Add a piece of a tool call to what came of it before."""
    function = piece.get("function")
    call["id"] = call.get("id") or piece.get("id")
    call["function"] = {key: text(call, "function", key) + text(function, key) for key in ("name", "arguments")}


def _call(call: Json) -> Json:
    try:
        given = json.loads(text(call, "function", "arguments") or "{}")
    except ValueError:
        given = {}
    return {"functionCall": {"id": call.get("id"), "name": text(call, "function", "name"), "args": given}}


def _candidate(choice: Json, parts: list[Json], *, ended: bool = False) -> Json:
    made: Json = {"index": place(choice.get("index")), "content": {"role": "model", "parts": parts}}
    return {**made, "finishReason": _ENDS.get(text(choice, "finish_reason"), "STOP")} if ended else made


def _usage(usage: object) -> Json:
    read, wrote = count(get(usage, "prompt_tokens")), count(get(usage, "completion_tokens"))
    thoughts = min(wrote, count(get(usage, "completion_tokens_details", "reasoning_tokens")))
    counts = {"promptTokenCount": read, "candidatesTokenCount": wrote - thoughts, "totalTokenCount": read + wrote}
    cached = count(get(usage, "prompt_tokens_details", "cached_tokens"))
    return {**counts, "cachedContentTokenCount": cached, "thoughtsTokenCount": thoughts}
