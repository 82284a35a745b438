"""Keeps secrets out of what is written: every occurrence of a known secret becomes `***`.

A secret is looked for in strings, in keys, and in the digits of numbers, so that what is written stays valid JSON.
Encoded forms (base64, reversed, spelled out) are beyond it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchflow.trajectory.events import Event

MASK = "***"

MIN_SECRET_LENGTH = 5
"""Shorter strings are not masked: they would match everywhere and hide nothing."""


class Redactor:
    """Masks a fixed set of secrets."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.secrets = sorted({s for s in secrets if len(s) >= MIN_SECRET_LENGTH}, key=len, reverse=True)
        # JSON escapes character by character, so a secret inside any string of a document shows up as exactly this.
        self._in_json = [json.dumps(secret)[1:-1] for secret in self.secrets]

    def found_in(self, document: str) -> bool:
        """Whether a JSON document (ASCII, as `json.dumps` writes it) may contain a secret."""
        return any(secret in document for secret in self._in_json)

    def event(self, event: Event) -> Event:
        """The same event with every secret in it masked; its type and time are ours and stay."""
        masked = {self.text(key): self.value(value) for key, value in event.items()}
        return masked | {key: event[key] for key in ("type", "ts") if key in event}

    def text(self, text: str) -> str:
        for secret in self.secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        return text

    def value(self, value: object) -> object:
        """The same JSON value with every secret in it masked."""
        if not self.secrets:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return MASK if any(secret in repr(value) for secret in self.secrets) else value
        return value

    def unsettled(self, text: str) -> int:
        """How many characters at the end of `text` may yet turn out to be the beginning of a secret."""
        return max((_overlap(text, secret) for secret in self.secrets), default=0)


def _overlap(text: str, secret: str) -> int:
    longest = min(len(text), len(secret) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(secret[:size])), 0)
