"""What the passes of one rollout share: its budget, the clock of its waiting, and why its model stopped answering."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchflow.gateway.alarm import Alarm
from benchflow.gateway.budget import Budget
from benchflow.gateway.clock import Clock

if TYPE_CHECKING:
    from benchflow.gateway.alarm import Trip
    from benchflow.gateway.budget import Limits, Usage

STRANGERS_KEPT = 20
"""Names of models that were not allowed which are remembered."""


class Tally:
    """One rollout's. `alarm` rings when a request of it is refused for good.

    `starved` says why the last request was given up, if its provider was too busy or out of reach; it is empty again
    after the next answer. What an agent could provoke by what it asks for, such as an internal error, is not counted.
    `strangers` counts requests for models that were not allowed, by name, as far as `STRANGERS_KEPT` names go.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.alarm = Alarm()
        self.budget = Budget(limits)
        self.clock = Clock()
        self.starved = ""
        self.strangers: dict[str, int] = {}

    @property
    def usage(self) -> Usage:
        """What was used so far."""
        return self.budget.usage

    def stranger(self, model: str) -> None:
        """A model was asked for that is not allowed."""
        if model in self.strangers or len(self.strangers) < STRANGERS_KEPT:
            self.strangers[model] = self.strangers.get(model, 0) + 1

    @property
    def trip(self) -> Trip | None:
        """Why requests are refused, if they are."""
        return self.alarm.trip
