"""How much was used, and how much may be.

A budget is looked at before a request and charged after it, so what is running when the limit is reached still ends:
the overshoot is at most the requests that were under way. Requests whose usage nobody reports cannot be charged; a
budget with a limit bears only a few of them, because otherwise its limit would mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from benchflow.gateway.alarm import Alarm, Trip
from benchflow.gateway.tokens import Tokens

UNMETERED_ALLOWED = 5
"""Answers without usage, or without a price, that a limit always bears: a client that hangs up early makes one."""

UNMETERED_SHARE = 0.1
"""The part of all answers that may be such."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds, in dollars and in tokens (read and written together); None leaves it open."""

    max_cost: float | None = None
    max_tokens: int | None = None


@dataclass(slots=True)
class Usage:
    """Running totals. `unmetered` answers reported no tokens, `unpriced` ones have no known price.

    `requests` are those that a model answered; `retries` are attempts that a provider was too busy for, or unreachable.
    """

    requests: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    priced: float = 0.0
    unmetered: int = 0
    unpriced: int = 0
    retries: int = 0

    @property
    def cost(self) -> float | None:
        """Dollars, or None when a part of them is not known."""
        return None if self.unpriced else self.priced

    def to_json(self) -> dict[str, object]:
        """As it stands in results. What is not known is None."""
        return {
            "requests": self.requests,
            **{f"{kind}_tokens": count for kind, count in self.tokens.to_json().items() if kind != "web_searches"},
            "web_searches": self.tokens.web_searches,
            "cost_usd": self.cost,
            "priced_usd": self.priced,
            "retries": self.retries,
            "unmetered_requests": self.unmetered,
            "unpriced_requests": self.unpriced,
        }

    def add(self, tokens: Tokens | None, cost: float | None) -> None:
        """One answer of a model."""
        self.requests += 1
        self.unmetered += tokens is None
        self.unpriced += cost is None
        self.tokens += tokens or Tokens()
        self.priced += cost or 0.0


class Budget:
    """A limit and what was charged to it; may be shared by many passes. Its alarm rings when the limit is reached.

    `name` says whose it is; `spent` is what was used of it before.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        name: str = "rollout",
        alarm: Alarm | None = None,
        spent: Usage | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.usage = spent or Usage()
        self.alarm = alarm or Alarm()
        self._name = name

    def charge(self, tokens: Tokens | None, cost: float | None) -> None:
        """Add one answer; None is what is not known of it."""
        self.usage.add(tokens, cost)
        if trip := self.reached():
            self.alarm.ring(trip)

    def reached(self) -> Trip | None:
        """Why nothing more may be spent, or None."""
        limits, usage = self.limits, self.usage
        bearable = max(UNMETERED_ALLOWED, UNMETERED_SHARE * usage.requests)
        if limits.max_cost is not None:
            if usage.priced >= limits.max_cost:
                said = f"${usage.priced:.4f} of ${limits.max_cost:g} (max_cost)"
                return Trip("cost", f"the {self._name}'s budget is used up: {said}", self._name, limits.max_cost)
            if usage.unpriced > bearable:
                said = f"max_cost cannot be kept: {usage.unpriced} answers have no known price"
                return Trip("unmetered", f"the {self._name}'s {said}", self._name, limits.max_cost)
        if limits.max_tokens is not None:
            if usage.tokens.total >= limits.max_tokens:
                said = f"{usage.tokens.total} of {limits.max_tokens} tokens (max_tokens)"
                return Trip("tokens", f"the {self._name}'s budget is used up: {said}", self._name, limits.max_tokens)
            if usage.unmetered > bearable:
                said = f"max_tokens cannot be kept: {usage.unmetered} answers reported no usage"
                return Trip("unmetered", f"the {self._name}'s {said}", self._name, limits.max_tokens)
        return None
