"""The seam for a provider that does not speak the agent's dialect: somebody who translates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from benchflow.gateway.account import Account
    from benchflow.gateway.upstream import Upstream


class Translator(Protocol):
    """Makes a provider answer in dialects that are not its own. One serves a whole gateway."""

    def missing(self, account: Account) -> str:
        """Why this account cannot be asked in another dialect than its own; nothing when it can. Starts nothing."""
        ...

    async def upstream(self, account: Account) -> Upstream:
        """Who answers requests of any dialect on this account. Starts what it needs; raises ModelError if not."""
        ...

    async def close(self) -> None:
        """End what was started. Idempotent."""
        ...
