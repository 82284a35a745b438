"""A request of one dialect as a call of LiteLLM's, and what it returns as bytes of that dialect.

Only what the dialect itself has is passed on: LiteLLM takes a hundred parameters more, which choose hosts, credentials,
files and callbacks, and a request is written by an agent.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from benchflow.gateway.litellm_bridge import gemini
from benchflow.gateway.refusal import Refusal
from benchflow.gateway.sse import Event, json_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from benchflow.agent.spec import Dialect
    from benchflow.gateway.dialects.base import Json

_ALLOWED: Mapping[Dialect, frozenset[str]] = {
    "anthropic": frozenset({
        "max_tokens", "messages", "stop_sequences", "system", "temperature", "thinking", "tool_choice", "tools",
        "top_k", "top_p",
    }),
    "openai-chat": frozenset({
        "frequency_penalty", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens", "messages", "n",
        "parallel_tool_calls", "presence_penalty", "reasoning_effort", "response_format", "seed", "stop",
        "stream_options", "temperature", "tool_choice", "tools", "top_logprobs", "top_p",
    }),
    "openai-responses": frozenset({
        "input", "instructions", "max_output_tokens", "parallel_tool_calls", "reasoning", "temperature", "text",
        "tool_choice", "tools", "top_p",
    }),
    "gemini": frozenset({"contents"}),
}  # fmt: skip
"""Parameters of a dialect that are translated; others, such as those for caches and metadata, are left out."""

_MODEL = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9_.:@/-]*")


def is_geminis_own(dialect: Dialect, prefix: str, model: str) -> bool:
    """Whether a request of Gemini's goes to a Gemini: then nothing of it need be translated."""
    return dialect == "gemini" and prefix == "vertex_ai" and model.startswith("gemini")


def arguments(dialect: Dialect, body: Json, model: str, *, own: bool = False) -> dict[str, Any]:
    """What a request becomes; `own` is what `is_geminis_own` says. Raises Refusal for what cannot be translated,
    and for a model whose name could lead elsewhere."""
    if not _MODEL.fullmatch(model):
        raise Refusal(400, f"{model!r} is not the name of a model")
    if dialect == "gemini" and not own:
        return gemini.to_chat(body)
    passed = {key: value for key, value in body.items() if key in _ALLOWED[dialect] and value is not None}
    if dialect == "gemini":
        return passed | _geminis(body)
    return _plain_tools(passed) if dialect == "openai-responses" else passed


def _plain_tools(passed: dict[str, Any]) -> dict[str, Any]:
    """Functions are what every provider has; tools that only OpenAI runs or understands are left out."""
    if not isinstance(tools := passed.get("tools"), list):
        return passed
    return {**passed, "tools": [tool for tool in tools if isinstance(tool, dict) and tool.get("type") == "function"]}


def _geminis(body: Json) -> dict[str, Any]:
    names = {"generationConfig": "config", "systemInstruction": "systemInstruction", "toolConfig": "toolConfig"}
    found = {ours: body[theirs] for theirs, ours in names.items() if body.get(theirs) is not None}
    return {**found, "tools": body["tools"]} if isinstance(body.get("tools"), list) else found


async def ask(litellm: Any, dialect: Dialect, given: Mapping[str, Any], *, stream: bool, own: bool = False) -> Any:
    """Call LiteLLM; the answer is whole, or something to iterate over. Raises what it raises."""
    match dialect:
        case "anthropic":
            return await litellm.anthropic_messages(**given, stream=stream)
        case "openai-chat":
            return await litellm.acompletion(**given, stream=stream)
        case "openai-responses":
            return await litellm.aresponses(**given, stream=stream)
        case "gemini" if own:
            genai = litellm.google_genai
            return await (genai.agenerate_content_stream if stream else genai.agenerate_content)(**given)
        case "gemini":
            more = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
            answer = await litellm.acompletion(**given, **more)
            if stream:
                return gemini.stream_from_chat(_document(chunk) async for chunk in answer)
            return gemini.from_chat(_document(answer))


def whole(answer: Any) -> bytes:
    """An answer that was not streamed."""
    return json.dumps(_document(answer)).encode()


def _document(answer: Any) -> Any:
    return answer.model_dump(mode="json", exclude_none=True) if hasattr(answer, "model_dump") else answer


async def pieces(dialect: Dialect, answer: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    """A streamed answer as server-sent events."""
    async for one in answer:
        if isinstance(one, bytes):
            yield one
        elif isinstance(one, str):
            yield one.encode()
        else:
            document = _document(one)
            name = str(document.get("type", "")) if dialect in ("anthropic", "openai-responses") else ""
            yield json_event(document, name).to_bytes()
    if dialect == "openai-chat":
        yield Event("[DONE]").to_bytes()
