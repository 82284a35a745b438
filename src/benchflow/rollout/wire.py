"""How the agents of one rollout reach their models: through passes of a gateway, so that no key enters a sandbox.

The gateway is the job's; a rollout that is alone opens its own. All passes of a rollout have one tally: what they used,
what they may use, and how long they waited. An agent that can only use a login or a token of its own, or a sandbox that
cannot be listened in, leaves no other way than the direct one; the result then says so.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from pydantic import SecretStr

from benchflow.agent.launch import Endpoint
from benchflow.errors import ConfigError
from benchflow.gateway.ledger import Ledger
from benchflow.gateway.litellm_bridge.translator import LiteLLMTranslator
from benchflow.gateway.price import price_table
from benchflow.gateway.server import Gateway
from benchflow.gateway.tally import Tally
from benchflow.rollout.plan import account_for
from benchflow.rollout.result import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchflow.gateway.admission import Pass
    from benchflow.gateway.budget import Budget, Limits
    from benchflow.rollout.plan import Player
    from benchflow.rollout.scene import Role
    from benchflow.sandbox.base import Listener, Sandbox


class Wire:
    """A pass for each role of one rollout. `open` it once, then `close` it.

    `limits` are the rollout's own; `budgets` are charged too, and may end it. Without a `gateway` it opens one, and
    closes it at the end. `secrets` are kept out of the ledger, beside the credentials.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        ledger: Path,
        note: Callable[[str], None],
        *,
        limits: Limits | None = None,
        allowed: Sequence[str] = (),
        gateway: Gateway | None = None,
        budgets: Sequence[Budget] = (),
        secrets: Sequence[str] = (),
    ) -> None:
        self.tally = Tally(limits)
        self.total = self.tally
        """What `usage` tells: for a branch that its rollout goes on as, all of the rollout's."""
        self._budgets = budgets
        self._sandbox = sandbox
        self._ledger = Ledger(ledger, secrets=secrets)
        self._note = note
        self._allowed = allowed
        self._own = Gateway(translator=LiteLLMTranslator()) if gateway is None else None
        self._gateway = gateway or self._own
        self._stack = AsyncExitStack()
        self._passes: dict[Role, tuple[Pass, Listener]] = {}

    async def open(self) -> None:
        if self._own:
            await self._stack.enter_async_context(self._own)

    async def endpoint(self, player: Player) -> Endpoint | None:
        """What the role's agent is pointed at; None when it must find its provider by itself.

        Raises ConfigError when the sandbox cannot reach a model in any way.
        """
        account, dialect = account_for(player, self._allowed), player.spec.dialect
        if account is None or dialect is None or (account.bearer and not self._sandbox.capabilities.listen):
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
        if player.role not in self._passes:
            assert self._gateway
            opened = self._gateway.admit(
                account, self._ledger, tally=self.tally, budgets=self._budgets, substitute=player.substitute
            )
            self._passes[player.role] = opened, await self._sandbox.listen(opened.serve)
            if account.bearer:
                how = "through the gateway; the cost is what the tokens would cost with a key"
                self._note(f"{player.spec.name} uses a login of {account.provider} {how}")
        opened, listener = self._passes[player.role]
        return Endpoint(opened.base_url(dialect, listener.port), SecretStr(opened.token))

    @property
    def usage(self) -> Usage | None:
        """What was used through the gateway; None when nothing went through it."""
        used = self.total.usage
        waiting = self.total.clock.seconds
        if not used.requests and not waiting:
            return None
        tokens = used.tokens
        return Usage(
            input_tokens=tokens.input,
            cached_tokens=tokens.cached,
            cache_write_tokens=tokens.cache_write,
            output_tokens=tokens.output,
            reasoning_tokens=tokens.reasoning,
            cost_usd=used.cost,
            priced_usd=used.priced,
            prices=price_table(),
            requests=used.requests,
            retries=used.retries,
            unmetered_requests=used.unmetered,
            unpriced_requests=used.unpriced,
            waiting_seconds=round(waiting, 4),
        )

    async def close(self) -> None:
        """End every pass: its token is dead from now on, and every exchange is in the ledger. Idempotent."""
        passes, self._passes = list(self._passes.values()), {}
        for opened, listener in passes:
            await opened.close()
            await listener.close()
        if passes and self.tally.strangers:
            names = ", ".join(f"{name} ({times})" for name, times in self.tally.strangers.items())
            self._note(f"refused, because the agent was not configured for them: {names} (allow_models)")
        await self._stack.aclose()
        self._ledger.close()
