"""From bytes to messages: newline-delimited JSON-RPC as real agents write it.

Standard output of an agent carries messages, and often other things: log lines, banners, progress without a newline,
JSON that is not JSON-RPC. Nothing of that may disturb the messages around it, and nothing is dropped unseen: what is
not a message comes out as `Noise`. Pure functions of the bytes: how they were cut into chunks makes no difference.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal

LINE_LIMIT = 32 * 1024 * 1024
"""Bytes of the longest line that is taken as a message; of a longer one only the beginning is kept, as noise.

What JSON says in a byte may take twenty in memory, so this bounds what one agent can make of ours."""

NOISE_KEPT = 2000
"""Characters kept of a line that is not a message."""

_MESSAGE_START = re.compile(r'\{\s*"jsonrpc"')
"""Where a message may begin behind other text: every known implementation writes this member first."""

type Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Message:
    """A JSON-RPC message: `kind` says what it is by the presence and type of its members, nothing else is checked."""

    kind: Literal["request", "notification", "response"]
    body: Json


@dataclass(frozen=True, slots=True)
class Noise:
    """A line, or a part of one, that is not a message."""

    text: str


class LineSplitter:
    """Cuts a stream of chunks at newlines, holding at most `limit` bytes of an unfinished line."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._held = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their newlines. One that was too long is cut at the limit."""
        first, *others = chunk.split(b"\n")
        self._hold(first)
        lines = []
        for part in others:
            lines.append(self.end())
            self._hold(part)
        return lines

    def end(self) -> bytes:
        """What is held of an unfinished line; nothing is held afterwards."""
        line = bytes(self._held)
        self._held = bytearray()
        return line

    def _hold(self, part: bytes) -> None:
        self._held += part[: self._limit - len(self._held)]


def parse(line: bytes) -> list[Message | Noise]:
    """What one line holds: nothing, a message, noise, or noise that runs into a message."""
    text = line.decode("utf-8", "replace").strip()
    if not text:
        return []
    message = _message(text)
    if message is not None:
        return [message]
    start = _MESSAGE_START.search(text)
    message = _message(text[start.start() :]) if start else None
    if start and message is not None:
        return [Noise(text[: start.start()][:NOISE_KEPT]), message]
    return [Noise(text[:NOISE_KEPT])]


def _message(text: str) -> Message | None:
    if not text.startswith("{"):
        return None
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    kind = _kind(body)
    return Message(kind, body) if kind is not None else None


def _kind(body: Json) -> Literal["request", "notification", "response"] | None:
    ident = body.get("id")
    if isinstance(body.get("method"), str):
        if ident is None:
            return "notification"
        return "request" if type(ident) in (int, str) else None
    return "response" if ident is not None and ("result" in body or "error" in body) else None
