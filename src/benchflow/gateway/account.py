"""On whose account a rollout's requests are sent: the provider, where it is, and what may be asked of it."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from benchflow.agent.providers import split_model

if TYPE_CHECKING:
    from pydantic import SecretStr

    from benchflow.agent.credentials import Credentials
    from benchflow.agent.spec import Dialect


@dataclass(frozen=True, slots=True)
class Account:
    """A provider's account. `base_url` is what a client of one of `dialects` takes.

    `model` is the one that the rollout was configured for: when the provider does not know it, that is fatal, which it
    is not for a helper model that an agent asks for by itself. `models` are the names (or patterns such as
    `claude-*`) that may be asked for; None allows any.
    """

    provider: str
    base_url: str
    api_key: SecretStr
    dialects: tuple[Dialect, ...]
    model: str = ""
    models: tuple[str, ...] | None = None

    def allows(self, model: str) -> bool:
        return self.models is None or any(fnmatchcase(model, pattern) for pattern in self.models)

    @property
    def identity(self) -> tuple[str, str]:
        """What rate limits and dead keys belong to."""
        return self.base_url, self.api_key.get_secret_value()


def account_of(found: Credentials, model: str | None, *, models: tuple[str, ...] | None = None) -> Account | None:
    """The account of a rollout's credentials; None when only the agent itself can use them."""
    if found.api_key is None or not found.base_url or not found.dialects:
        return None
    return Account(
        provider=found.provider,
        base_url=found.base_url,
        api_key=found.api_key,
        dialects=found.dialects,
        model=split_model(model)[1],
        models=models,
    )
