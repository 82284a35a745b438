"""A request that is answered by the gateway itself, in the words of the client's dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchflow.gateway.alarm import Trip


class Refusal(Exception):
    """Why a request goes no further; `status` is the HTTP status of the answer. With `trip`, nor will any other."""

    def __init__(self, status: int, message: str, *, trip: Trip | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.trip = trip
