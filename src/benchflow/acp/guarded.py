"""Callbacks of our caller, called from places where nobody of theirs would see them fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Guarded[T]:
    """Calls a callback that may raise: the first failure is kept for `check`, and the callback is then left alone."""

    def __init__(self, callback: Callable[[T], None]) -> None:
        self._callback = callback
        self._failure: Exception | None = None

    def __call__(self, value: T) -> None:
        if self._failure is not None:
            return
        try:
            self._callback(value)
        except Exception as error:  # noqa: BLE001 - kept, and raised by `check`
            self._failure = error

    def check(self) -> None:
        """Raise what the callback raised."""
        if self._failure is not None:
            raise self._failure
