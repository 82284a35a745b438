"""Who serves a model: what the prefix of a model's name means, which variables hold the key, and where it is.

`provider/model` names both. The providers are data, in providers.toml. One that is not there follows the convention
`<PROVIDER>_API_KEY` and `<PROVIDER>_BASE_URL`; for one that is, `<PROVIDER>_BASE_URL` replaces the public address.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchflow.agent.spec import Dialect

DATA = Path(__file__).with_suffix(".toml")
"""The providers we know."""


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider. `keys` are the variables that may hold its key, the first one being the one to recommend.

    `base_url` is its public address as a client of its first dialect takes it, perhaps with names of variables in
    braces; empty when the user must give it in `base_url_var`. `path` is what follows an address given there.
    A provider without `dialects` is spoken to by LiteLLM alone, which calls it `litellm`: then `requires` says for each
    key which variables must be set beside it, by the parameter that they are for, and `optional` which may be.
    """

    name: str
    keys: tuple[str, ...]
    base_url_var: str
    base_url: str = ""
    path: str = ""
    dialects: tuple[Dialect, ...] = ("openai-chat",)
    key_optional: bool = False
    litellm: str = ""
    requires: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)

    def variables(self, key: str) -> tuple[str, ...]:
        """Every variable that must be set when `key` holds the key, but for the address where there is none."""
        needed = [key, *self.requires.get(key, {}).values(), *re.findall(r"{(\w+)}", self.base_url)]
        return tuple(dict.fromkeys(needed))

    def parameters(self, key: str, known: Mapping[str, str]) -> dict[str, str]:
        """What LiteLLM is given, from the variables that are set."""
        named = {**self.requires.get(key, {}), **self.optional}
        return {parameter: known[variable] for parameter, variable in named.items() if known.get(variable)}


def _read(name: str, row: Mapping[str, Any]) -> Provider:
    stem = re.sub(r"[^A-Z0-9]+", "_", name.upper())
    values: dict[str, Any] = {"name": name, "keys": (f"{stem}_API_KEY",), "base_url_var": f"{stem}_BASE_URL"}
    for key, value in row.items():
        if key not in ("aliases", "models"):
            values[key] = tuple(value) if isinstance(value, list) else value
    return Provider(**values)


_ROWS: Mapping[str, Mapping[str, Any]] = tomllib.loads(DATA.read_text("utf-8"))
PROVIDERS: Mapping[str, Provider] = {name: _read(name, row) for name, row in _ROWS.items()}
ALIASES: Mapping[str, str] = {alias: name for name, row in _ROWS.items() for alias in row.get("aliases", ())}

_FAMILIES: Mapping[str, str] = {row["models"]: name for name, row in _ROWS.items() if "models" in row}
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
    return PROVIDERS.get(name) or _read(name, {})


def provider_url(provider: Provider, given: str, known: Mapping[str, str] | None = None) -> str:
    """Where the provider is, when `given` (perhaps nothing) is what its variable says; nothing when nobody says.

    `known` are the variables that its public address may be made of.
    """
    base = given.strip().rstrip("/") or provider.base_url.format_map(known or {})
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
