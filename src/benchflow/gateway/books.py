"""Where an exchange is charged and written down when it has ended, and who is told when it must be the last one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchflow.errors import BenchflowError
from benchflow.gateway.alarm import Trip
from benchflow.gateway.ledger import Exchange, now
from benchflow.gateway.price import price, price_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchflow.gateway.account import Account
    from benchflow.gateway.alarm import Alarm
    from benchflow.gateway.budget import Budget
    from benchflow.gateway.capture import Capture
    from benchflow.gateway.dialects.base import Json, Route
    from benchflow.gateway.door import Visitor
    from benchflow.gateway.ledger import Ledger
    from benchflow.gateway.line import Line
    from benchflow.gateway.refusal import Refusal
    from benchflow.gateway.tally import Tally
    from benchflow.gateway.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Books:
    """The books of one pass. `tally` is its rollout's; `alarm` is that of everything on this gateway."""

    account: Account
    line: Line
    ledger: Ledger
    budgets: Sequence[Budget]
    tally: Tally
    alarm: Alarm

    def stop(self, trip: Trip) -> None:
        """Nothing more is sent for this rollout; if the reason is a fatal one, for nobody on this account."""
        self.tally.alarm.ring(trip)
        if trip.fatal:
            self.alarm.ring(trip)

    def refuse(self, method: str, visitor: Visitor, refusal: Refusal) -> None:
        """Write down a request that went no further than the door."""
        record = Exchange(
            ts=now(),
            id=self.ledger.next_id(),
            dialect=visitor.dialect.name,
            operation="refused",
            method=method,
            path=visitor.path,
            provider=self.account.provider,
            status=refusal.status,
            ended="refused",
            error=refusal.message,
        )
        self._append(record)

    def enter(self, record: Exchange, route: Route, capture: Capture | None, *, sent: bool) -> None:
        """Charge an exchange and write it down. Never raises: a ledger that cannot be written stops the pass."""
        document = capture.document() if capture else None
        if capture:
            record.response = capture.to_json(document if self.ledger.room(capture.kept) else None)
        for budget in self.budgets:
            budget.usage.retries += len(record.retries)
        if route.operation == "generate" and sent and record.ended != "failed" and (record.status or 200) < 300:
            self._charge(record, route.dialect.tokens(document or {}), document or {})
        self._append(record)

    def _append(self, record: Exchange) -> None:
        try:
            self.ledger.append(record)
        except BenchflowError as error:
            self.stop(Trip("ledger", error.message))

    def _charge(self, record: Exchange, tokens: Tokens | None, document: Json) -> None:
        answered = document.get("model") or document.get("modelVersion")
        record.answered_by = answered if isinstance(answered, str) else None
        if tokens is not None and tokens.total == 0:
            tokens = None  # who reports nothing but zeros does not report: every answer has read something
        if tokens:
            record.tokens = tokens.to_json()
            record.prices = price_table()
            record.cost = self._cost(record, tokens, document.get("service_tier"))
        for budget in self.budgets:
            budget.charge(tokens, record.cost)

    def _cost(self, record: Exchange, tokens: Tokens, tier: object) -> float | None:
        """Dollars, by the name under which the provider answered, else by the one that was asked for."""
        if record.replayed:
            return 0.0
        names = dict.fromkeys(name for name in (record.answered_by, record.model) if name)
        tier = tier if isinstance(tier, str) else ""
        found = (price(self.account.provider, name, tokens, tier=tier) for name in names)
        return next((float(cost) for cost in found if cost is not None), None)
