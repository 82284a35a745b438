"""On whose account a rollout's requests are sent: the provider, where it is, and what may be asked of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import escape
from typing import TYPE_CHECKING

from benchflow.agent.providers import split_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import SecretStr

    from benchflow.agent.credentials import Credentials
    from benchflow.agent.spec import Dialect


@dataclass(frozen=True, slots=True)
class Account:
    """A provider's account. `base_url` is what a client of one of `dialects` takes.

    `model` is the one that the rollout was configured for: when the provider does not know it, that is fatal, which it
    is not for a helper model that an agent asks for by itself. `models` are the names (or patterns such as
    `claude-*`) that may be asked for; None allows any. A provider without `dialects` is asked by LiteLLM alone, which
    calls it `litellm` and takes `parameters`. The key of a `bearer` account is the token of a login, which is sent as
    one whatever the dialect, with `headers`.
    """

    provider: str
    base_url: str
    api_key: SecretStr
    dialects: tuple[Dialect, ...]
    model: str = ""
    models: tuple[str, ...] | None = None
    litellm: str = ""
    parameters: Mapping[str, SecretStr] = field(default_factory=dict)
    bearer: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def allows(self, model: str) -> bool:
        return self.models is None or any(fnmatchcase(model, pattern) for pattern in self.models)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Everything of it that nobody may see."""
        named = [value for name, value in self.parameters.items() if re.search("key|token|secret", name)]
        return tuple(dict.fromkeys(secret.get_secret_value() for secret in (self.api_key, *named)))

    @property
    def identity(self) -> tuple[str, str]:
        """What rate limits and dead keys belong to."""
        return self.base_url, self.api_key.get_secret_value()


def account_of(found: Credentials, model: str | None, *, allowed: Sequence[str] = ()) -> Account | None:
    """The account of a rollout's credentials; None when only the agent itself can use them.

    With a model, only that one may be asked for, under its name or a dated one, and those that match `allowed`.
    """
    if found.api_key is None or not found.base_url or not (found.dialects or found.litellm):
        return None
    name = split_model(model)[1]
    models = (escape(name), f"{escape(name)}-20[0-9][0-9]*", *allowed) if name else None
    return Account(
        provider=found.provider,
        base_url=found.base_url,
        api_key=found.api_key,
        dialects=found.dialects,
        model=name,
        models=models,
        litellm=found.litellm,
        parameters=found.parameters,
        bearer=found.login is not None,
        headers=found.login.headers if found.login else {},
    )
