"""How the agents of one rollout reach their models: through a pass of the gateway, so that no key enters a sandbox.

An agent that can only use a login or a token of its own, or a sandbox that cannot be listened in, leaves no other way
than the direct one; the result then says so.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from pydantic import SecretStr

from benchflow.agent.launch import Endpoint
from benchflow.errors import ConfigError
from benchflow.gateway.account import account_of
from benchflow.gateway.ledger import Ledger
from benchflow.gateway.litellm_bridge.translator import LiteLLMTranslator
from benchflow.gateway.server import Gateway
from benchflow.rollout.result import Usage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchflow.gateway.admission import Pass
    from benchflow.gateway.alarm import Trip
    from benchflow.rollout.plan import Player
    from benchflow.sandbox.base import Listener, Sandbox


class Wire:
    """One gateway for one rollout, and a pass for each of its roles. Made by entering it as a context."""

    def __init__(self, sandbox: Sandbox, ledger: Path, note: Callable[[str], None]) -> None:
        self._sandbox = sandbox
        self._ledger = Ledger(ledger)
        self._note = note
        self._gateway = Gateway(translator=LiteLLMTranslator())
        self._stack = AsyncExitStack()
        self._passes: dict[str, tuple[Pass, Listener]] = {}

    async def open(self) -> None:
        await self._stack.enter_async_context(self._gateway)

    async def endpoint(self, player: Player) -> Endpoint | None:
        """What the role's agent is pointed at; None when it must find its provider by itself.

        Raises ConfigError when the sandbox cannot reach a model in any way.
        """
        account = account_of(player.credentials, player.role.model)
        dialect = player.spec.dialect
        if account is None or dialect is None or not player.through_gateway:
            if player.credentials.provider:
                self._note(
                    f"{player.spec.name} reaches {player.credentials.provider} by itself; usage is its own report"
                )
            return None
        if not self._sandbox.capabilities.listen:
            if dialect not in account.dialects:
                raise ConfigError(f"{player.spec.name} cannot reach {account.provider} from this sandbox")
            self._note(f"the key for {account.provider} is in the sandbox: it cannot be listened in")
            return Endpoint(account.base_url, account.api_key)
        if player.role.name not in self._passes:
            opened = self._gateway.admit(account, self._ledger)
            self._passes[player.role.name] = opened, await self._sandbox.listen(opened.serve)
        opened, listener = self._passes[player.role.name]
        return Endpoint(opened.base_url(dialect, listener.port), SecretStr(opened.token))

    @property
    def usage(self) -> Usage | None:
        """What was used through the gateway; None when nothing went through it."""
        used = [opened.usage for opened, _ in self._passes.values() if opened.usage.requests]
        if not used:
            return None
        costs = [one.cost for one in used]
        return Usage(
            input_tokens=sum(one.tokens.input for one in used),
            output_tokens=sum(one.tokens.output for one in used),
            cached_tokens=sum(one.tokens.cached for one in used),
            cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
        )

    @property
    def trip(self) -> Trip | None:
        """Why a model refuses to answer, if one does."""
        return next((opened.tripped for opened, _ in self._passes.values() if opened.tripped), None)

    async def close(self) -> None:
        """End every pass: its token is dead from now on, and every exchange is in the ledger. Idempotent."""
        for opened, listener in self._passes.values():
            await opened.close()
            await listener.close()
        await self._stack.aclose()
        self._ledger.close()
