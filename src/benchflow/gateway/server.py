"""The gateway: the one way from agents to models. One in a process.

It admits rollouts, each with an account, a ledger and a budget, and gives out passes. It holds what they share: the
connections to providers, the pace and the fate of each account, the budget of the whole job, and the translator.

    async with Gateway(limits=Limits(max_cost=20)) as gateway:
        pass_ = gateway.admit(account, Ledger(folder / "llm_trajectory.jsonl"), Limits(max_cost=1))
        listener = await sandbox.listen(pass_.serve)
        ...  # the agent's base URL is pass_.base_url(dialect, listener.port), its key is pass_.token
        await pass_.close()
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from benchflow.errors import ModelError
from benchflow.gateway.admission import Pass
from benchflow.gateway.alarm import Alarm
from benchflow.gateway.books import Books
from benchflow.gateway.budget import Budget, Limits
from benchflow.gateway.courtesy import Courtesy
from benchflow.gateway.line import Line
from benchflow.gateway.price import load_prices
from benchflow.gateway.refusal import Refusal
from benchflow.gateway.tally import Tally
from benchflow.gateway.upstream import HttpUpstream, Sessions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from benchflow.gateway.account import Account
    from benchflow.gateway.alarm import Trip
    from benchflow.gateway.budget import Usage
    from benchflow.gateway.dialects.base import Route
    from benchflow.gateway.ledger import Ledger
    from benchflow.gateway.pace import Pace
    from benchflow.gateway.translate import Translator
    from benchflow.gateway.upstream import Substitute, Upstream


class Gateway:
    """Serves from `async with` to its end, which closes every pass.

    `limits` are those of everything together, of which `spent` was used before. `pace`, if given, is shared by all
    accounts; otherwise each has its own.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        spent: Usage | None = None,
        pace: Pace | None = None,
        translator: Translator | None = None,
    ) -> None:
        self.alarm = Alarm()
        """Rings when the job must end: its budget is used up, or nothing on an account can succeed."""
        self.budget = Budget(limits, name="job", alarm=self.alarm, spent=spent)
        self._pace = pace
        self._translator = translator
        self._lines: dict[tuple[str, str], Line] = {}
        self._passes: set[Pass] = set()
        self._sessions = Sessions()
        self._prices: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for pass_ in list(self._passes):
                await pass_.close()
        finally:
            if self._translator:
                await self._translator.close()
            await self._sessions.close()
            if self._prices:
                await self._prices

    def admit(
        self,
        account: Account,
        ledger: Ledger,
        limits: Limits | None = None,
        *,
        tally: Tally | None = None,
        budgets: Sequence[Budget] = (),
        substitute: Substitute | None = None,
    ) -> Pass:
        """A pass to the models of `account`, good until it is closed.

        `limits` are its own, unless it shares a `tally` with the other passes of its rollout; `budgets` are shared with
        others, beside the job's. `substitute` answers in the provider's place, whatever the dialect, until it is
        finished: a `Replayer`, say. The ledger stays the caller's, to be closed after the pass.
        """
        if self._prices is None:
            self._prices = asyncio.create_task(asyncio.to_thread(load_prices))
        tally = tally or Tally(limits)
        budgets = (tally.budget, *budgets, self.budget)
        books = Books(account, self._line(account), ledger, budgets, tally, self.alarm)

        async def router(route: Route) -> Upstream:
            await self._ready()
            if substitute is not None and not substitute.finished:
                return substitute
            return await self._upstream(account, route)

        pass_ = Pass(books, router)
        self._passes = {one for one in self._passes if not one.closed} | {pass_}
        return pass_

    def trip(self, account: Account) -> Trip | None:
        """Why nothing more need be asked on this account, if that is known: its key, its model, or the job's budget."""
        return self._line(account).trip(account.model) or self.budget.reached()

    def room(self, account: Account) -> int | None:
        """How many requests this account's provider bears at the same time now; None while it never complained."""
        return self._line(account).pace.room

    def _line(self, account: Account) -> Line:
        return self._lines.setdefault(account.identity, Line(self._pace))

    async def _ready(self) -> None:
        if self._prices and not self._prices.done():
            await asyncio.shield(self._prices)

    async def _upstream(self, account: Account, route: Route) -> Upstream:
        if route.dialect.name in account.dialects:
            return HttpUpstream(account, self._sessions.to(account.base_url))
        speaks = f"{account.provider} speaks {' and '.join(account.dialects)}, not {route.dialect.name}"
        if self._translator is None:
            raise Refusal(400, f"{speaks}, and there is no translator: install benchflow[litellm]")
        if missing := self._translator.missing(account):
            raise Refusal(400, f"{speaks}: {missing}")
        if route.operation != "generate":
            return Courtesy(account)
        try:
            return await self._translator.upstream(account)
        except ModelError as error:
            raise Refusal(502, f"{speaks}: {error.message}") from None
