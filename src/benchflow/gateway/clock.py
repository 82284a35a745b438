"""How long somebody was waited for: the time during which at least one request was under way."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """Runs while at least one `waiting` block is open; blocks that overlap are counted once."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._open = 0
        self._since = 0.0

    @property
    def seconds(self) -> float:
        """The time so far, that of open blocks included."""
        return self._sum + (time.monotonic() - self._since if self._open else 0.0)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        if self._open == 0:
            self._since = time.monotonic()
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if self._open == 0:
                self._sum += time.monotonic() - self._since
