"""Who serves a model: what the prefix of a model's name means, which variables hold the key, and where it is.

`provider/model` names both. A provider that is not in the table follows the convention `<PROVIDER>_API_KEY` and
`<PROVIDER>_BASE_URL`; for one that is, `<PROVIDER>_BASE_URL` replaces the public address.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchflow.agent.spec import Dialect


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider. `keys` are the variables that may hold its key, the first one being the one to recommend.

    `base_url` is its public address as a client of its first dialect takes it; empty when the user must give it in
    `base_url_var`. `path` is what follows an address given there.
    """

    name: str
    keys: tuple[str, ...]
    base_url_var: str
    base_url: str = ""
    path: str = ""
    dialects: tuple[Dialect, ...] = ("openai-chat",)


def _known(name: str, base_url: str, *dialects: Dialect, keys: tuple[str, ...] = ()) -> Provider:
    upper = name.upper()
    return Provider(
        name, keys or (f"{upper}_API_KEY",), f"{upper}_BASE_URL", base_url, dialects=dialects or ("openai-chat",)
    )


def _azure(name: str, path: str, *dialects: Dialect) -> Provider:
    return Provider(name, ("AZURE_API_KEY",), "AZURE_API_ENDPOINT", path=path, dialects=dialects)


PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        _known("openai", "https://api.openai.com/v1", "openai-responses", "openai-chat"),
        _known("anthropic", "https://api.anthropic.com", "anthropic"),
        _known(
            "gemini", "https://generativelanguage.googleapis.com", "gemini", keys=("GEMINI_API_KEY", "GOOGLE_API_KEY")
        ),
        _known("openrouter", "https://openrouter.ai/api/v1"),
        _known("mistral", "https://api.mistral.ai/v1"),
        _known("groq", "https://api.groq.com/openai/v1"),
        _known("xai", "https://api.x.ai/v1"),
        _known("zai", "https://api.z.ai/api/paas/v4"),
        _azure("azure-foundry-openai", "openai/v1", "openai-responses", "openai-chat"),
        _azure("azure-foundry-anthropic", "anthropic", "anthropic"),
    )
}
ALIASES: Mapping[str, str] = {"google": "gemini"}

_FAMILIES: Mapping[str, str] = {
    r"claude|(sonnet|opus|haiku)\b": "anthropic",
    r"gpt-|o\d\b|codex|chatgpt": "openai",
    r"gemini|gemma": "gemini",
    r"(mi|mag|dev|code|mini|pix)stral": "mistral",
    r"grok": "xai",
    r"deepseek": "deepseek",
    r"glm": "glm",
    r"kimi": "kimi",
    r"minimax": "minimax",
    r"hunyuan": "hunyuan",
    r"qwen": "qwen",
}
"""How a model's name begins -> who makes it."""


def split_model(model: str | None) -> tuple[str, str]:
    """Provider (empty when the name has no prefix) and name of a model."""
    prefix, slash, name = (model or "").partition("/")
    return (ALIASES.get(prefix, prefix), name) if slash else ("", prefix)


def infer_provider(model: str | None) -> str:
    """The provider of a model: its prefix, else the maker its name tells of, else nothing."""
    prefix, name = split_model(model)
    if prefix:
        return prefix
    return next((provider for family, provider in _FAMILIES.items() if re.match(family, name.lower())), "")


def get_provider(name: str) -> Provider:
    """The provider of that name; one that nobody has heard of follows the convention."""
    if name in PROVIDERS:
        return PROVIDERS[name]
    stem = re.sub(r"[^A-Z0-9]+", "_", name.upper())
    return Provider(name, (f"{stem}_API_KEY",), f"{stem}_BASE_URL")


def provider_url(provider: Provider, given: str) -> str:
    """Where the provider is, when `given` (perhaps nothing) is what its variable says; nothing when nobody says."""
    base = given.strip().rstrip("/") or provider.base_url
    if not base or not provider.path:
        return base
    return f"{_azure_origin(base, provider)}/{provider.path}"


def _azure_origin(endpoint: str, provider: Provider) -> str:
    """Azure gives one resource several addresses; each dialect has its own. Any other host is taken as it is."""
    parts = urlsplit(endpoint)
    resource, _, domain = (parts.hostname or "").partition(".")
    if not domain.endswith("azure.com"):
        return endpoint
    host = "services.ai.azure.com" if "anthropic" in provider.dialects else "openai.azure.com"
    return f"https://{resource}.{host}"
