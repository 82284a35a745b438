"""Keeps secrets out of what is written: every occurrence of a known secret becomes `***`.

A secret is looked for in strings, in keys, and in the digits of numbers, so that what is written stays valid JSON.
Encoded forms (base64, reversed, spelled out) are beyond it.
"""

from __future__ import annotations

import errno
import json
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from benchflow.trajectory.events import Event

MASK = "***"

MASKED_WHOLE = 64 * 1024 * 1024
"""Bytes of a file with a secret in it beyond which it is not worth to be kept."""

LOOKED_AT = 1024 * 1024
"""Bytes of a file that are looked at in one piece."""

MIN_SECRET_LENGTH = 5
"""Shorter strings are not masked: they would match everywhere and hide nothing."""

_SECRET_NAME = re.compile(
    r"key|token|secret|passw|passphrase|credential|(?:^|_)(?:auth|authorization|pwd|pass|pat|cookie|dsn)(?:$|_)",
    re.IGNORECASE,
)
_PASSWORD_IN_URL = re.compile(r"://[^/@\s]*:([^/@\s]+)@")


def secrets_of(variables: Mapping[str, str]) -> list[str]:
    """The values of variables whose names say that they are secret, and the passwords in URLs among the others."""
    named = [value for name, value in variables.items() if _SECRET_NAME.search(name)]
    return [*named, *(found for value in variables.values() for found in _PASSWORD_IN_URL.findall(value))]


def mask_files(folder: Path, secrets: Iterable[str]) -> None:
    """Mask secrets in every file below `folder`; of one longer than `MASKED_WHOLE` nothing is left. Raises OSError."""
    known = [secret.encode() for secret in Redactor(secrets).secrets]
    for path in (where / name for where, _, names in folder.walk() for name in names) if known else ():
        if path.is_symlink() or not _holds(path, known):
            continue
        status = path.stat()
        content = path.read_bytes() if status.st_size <= MASKED_WHOLE else MASK.encode()
        for secret in known:
            content = content.replace(secret, MASK.encode())
        path.unlink()  # it may have other names, and need not be ours to write
        path.write_bytes(content)
        path.chmod(status.st_mode)


def _holds(path: Path, secrets: list[bytes]) -> bool:
    """Whether a file contains one of the secrets; holes are not looked at, so that their length costs nothing."""
    overlap, tail, offset = max(map(len, secrets)) - 1, b"", 0
    with path.open("rb", buffering=0) as file:
        while True:
            try:
                start = os.lseek(file.fileno(), offset, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return False
                start = offset  # a file system that does not tell
            if not (chunk := os.pread(file.fileno(), LOOKED_AT, start)):
                return False
            seen = tail + chunk if start == offset else chunk
            if any(secret in seen for secret in secrets):
                return True
            tail, offset = seen[-overlap:], start + len(chunk)


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
