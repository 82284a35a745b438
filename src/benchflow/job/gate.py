"""Who may start now, and whether anything may: the host's room, the job's budget, and what its providers bear.

While a provider pushes back, no more rollouts use it than it answers requests at a time, which grows again as it
answers. A key that is dead, a model that is unknown or a budget that is used up is met by nobody twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchflow.job.retry import model_refused, out_of_money

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from benchflow.gateway.account import Account
    from benchflow.gateway.server import Gateway
    from benchflow.job.host import Admission
    from benchflow.job.retry import Halt
    from benchflow.job.scheduler import Work

type Accounts = Callable[[Work], Collection[Account]]
"""The accounts that a rollout's requests are going to be sent on."""


class Gate:
    """The scheduler's. `accounts` says whom a rollout is going to ask."""

    def __init__(self, host: Admission, gateway: Gateway | None = None, accounts: Accounts = lambda _: ()) -> None:
        self._host = host
        self._gateway = gateway
        self._accounts = accounts

    def problem(self, work: Work) -> Halt | None:
        """Why this rollout, and others like it, must not be started at all."""
        if halt := self._host.problem():
            return halt
        for account in self._accounts(work) if self._gateway else ():
            assert self._gateway
            if trip := self._gateway.trip(account):
                return out_of_money(trip.message) if trip.scope else model_refused(work.model, trip.message)
        return None

    def admit(self, work: Work, running: Collection[Work]) -> bool:
        """Whether the host has room for it beside those that run; if so it is counted. One that is alone always may."""
        return self._host.admit(work, running)

    def crowded(self, work: Work, running: Collection[Work]) -> bool:
        """Whether a provider that it asks has no room for it beside those that run. One that is alone always may."""
        if self._gateway is None or not running:
            return False
        for account in self._accounts(work):
            room = self._gateway.room(account)
            if room is not None and room <= sum(self._shares(other, account) for other in running):
                return True
        return False

    def _shares(self, other: Work, account: Account) -> bool:
        return any(one.identity == account.identity for one in self._accounts(other))
