"""One question to a model, in the provider's own dialect. For judges: no tools, no streaming, one answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from benchflow.agent.providers import get_provider, infer_provider, provider_url, split_model
from benchflow.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

ASK_TIMEOUT = 300.0
"""Seconds that one answer may take."""

ANSWER_TOKENS = 4096
"""Tokens an answer may have, where the dialect wants a number."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where a model is and how it is spoken to. The key stays out of the repr."""

    model: str
    url: str
    headers: Mapping[str, str]
    dialect: str

    def __repr__(self) -> str:
        return f"Upstream(model={self.model!r}, url={self.url!r}, dialect={self.dialect!r})"


def resolve_model(model: str, environ: Mapping[str, str]) -> Upstream:
    """The way to a model. Raises ConfigError that names the variable to set."""
    name = infer_provider(model)
    if not name:
        raise ConfigError(f"the model {model!r} does not tell its provider", hint=f"write provider/{model}")
    provider = get_provider(name)
    if not provider.dialects:
        raise ConfigError(
            f"the model {model!r} cannot be a judge: {name} is only reached through the gateway",
            hint="take a judge of another provider",
        )
    key = next((environ[var] for var in provider.keys if environ.get(var)), "")
    if not key:
        raise ConfigError(f"the model {model!r} needs {' or '.join(provider.keys)}, which is not set")
    base = provider_url(provider, environ.get(provider.base_url_var, ""))
    if not base:
        raise ConfigError(
            f"Provider '{name}' for model '{model}' requires {provider.base_url_var} to build the provider base URL."
        )
    bare = split_model(model)[1]
    if "anthropic" in provider.dialects:
        return Upstream(bare, f"{base}/v1/messages", {"x-api-key": key, "anthropic-version": "2023-06-01"}, "anthropic")
    if "gemini" in provider.dialects:
        url = f"{base}/v1beta/models/{bare}:generateContent"
        return Upstream(bare, url, {"x-goog-api-key": key}, "gemini")
    return Upstream(bare, f"{base}/chat/completions", {"Authorization": f"Bearer {key}"}, "openai-chat")


async def ask(model: str, prompt: str, environ: Mapping[str, str], *, timeout: float = ASK_TIMEOUT) -> str:
    """The model's answer as text. Raises ConfigError before anything is sent, ModelError for what goes wrong then."""
    upstream = resolve_model(model, environ)
    limits = aiohttp.ClientTimeout(total=timeout)
    try:
        async with (
            aiohttp.ClientSession(timeout=limits, trust_env=True) as client,
            client.post(upstream.url, json=_body(upstream, prompt), headers=upstream.headers) as reply,
        ):
            if reply.status != 200:
                words = (await reply.text())[:500]
                raise ModelError(f"{upstream.model} answered with HTTP {reply.status}: {words}", status=reply.status)
            return _text(upstream.dialect, await reply.json(content_type=None))
    except TimeoutError:
        raise ModelError(f"{upstream.model} did not answer within {timeout:g} s") from None
    except (aiohttp.ClientError, ValueError) as error:
        raise ModelError(f"{upstream.model} cannot be asked: {error}") from None


def _body(upstream: Upstream, prompt: str) -> dict[str, Any]:
    if upstream.dialect == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": prompt}]}]}
    body: dict[str, Any] = {"model": upstream.model, "messages": [{"role": "user", "content": prompt}]}
    return {**body, "max_tokens": ANSWER_TOKENS} if upstream.dialect == "anthropic" else body


def _text(dialect: str, reply: Any) -> str:
    try:
        if dialect == "anthropic":
            return "".join(block["text"] for block in reply["content"] if block["type"] == "text")
        if dialect == "gemini":
            parts = reply["candidates"][0]["content"]["parts"]
            return "".join(part.get("text", "") for part in parts if not part.get("thought"))
        return str(reply["choices"][0]["message"]["content"])
    except (KeyError, IndexError, TypeError):
        raise ModelError(f"the model's answer has an unknown shape: {str(reply)[:300]}") from None
