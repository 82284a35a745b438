"""What all rollouts on one account share: its pace, and whether it works at all.

A key that was refused, or a model that does not exist, is found out once. A refusal that an agent can provoke by what
it asks for (a 403, a 404) condemns nothing that has worked before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchflow.gateway.pace import Pace

if TYPE_CHECKING:
    from benchflow.gateway.alarm import Trip


class Line:
    """The state of one account in this process."""

    def __init__(self, pace: Pace | None = None) -> None:
        self.pace = pace or Pace()
        self._dead: Trip | None = None
        self._missing: dict[str, Trip] = {}
        self._worked: set[str] = set()

    def trip(self, model: str) -> Trip | None:
        """Why a request for `model` need not be sent."""
        return self._dead or self._missing.get(model)

    def worked(self, model: str) -> None:
        self._worked.add(model)

    def condemn(self, trip: Trip, model: str, *, certain: bool) -> bool:
        """Take note of a fatal refusal; False when it is not believed, because the same has worked before."""
        if not certain and (model in self._worked if trip.kind == "model" else self._worked):
            return False
        if trip.kind == "model":
            self._missing[model] = trip
        else:
            self._dead = trip
        return True
