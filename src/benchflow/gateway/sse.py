"""Server-sent events, read from bytes that arrive cut at any place, and written.

Memory is bounded: an event longer than `EVENT_LIMIT` is dropped and counted, and reading goes on behind it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

EVENT_LIMIT = 32 * 1024 * 1024
"""Bytes that one event may have."""

_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its name, where it has one, and its data as text."""

    data: str
    name: str = ""

    def to_bytes(self) -> bytes:
        head = f"event: {self.name}\n" if self.name else ""
        lines = "".join(f"data: {line}\n" for line in self.data.split("\n"))
        return f"{head}{lines}\n".encode("utf-8", "surrogatepass")


def json_event(data: object, name: str = "") -> Event:
    return Event(json.dumps(data), name)


class SseParser:
    """Feed it bytes, take events. `dropped` counts events that were too long to be kept."""

    def __init__(self, *, limit: int = EVENT_LIMIT) -> None:
        self.dropped = 0
        self._limit = limit
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._size = 0
        self._blank = True
        self._after_cr = False
        self._begun = False

    def feed(self, data: bytes) -> list[Event]:
        """The events that are complete with these bytes."""
        if not data:
            return []
        events: list[Event] = []
        start = 1 if self._after_cr and data[:1] == b"\n" else 0
        self._after_cr = False
        for end in _LINE_END.finditer(data, start):
            self._keep(data[start : end.start()])
            if (event := self._take_line()) is not None:
                events.append(event)
            start = end.end()
            self._after_cr = end.end() == len(data) and end.group() == b"\r"
        self._keep(data[start:])
        return events

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        self._blank = self._blank and not piece
        if self._size <= self._limit:
            self._line.append(piece)

    def _take_line(self) -> Event | None:
        line, blank = b"".join(self._line), self._blank
        self._line, self._blank = [], True
        if not self._begun:
            line = line.removeprefix(b"\xef\xbb\xbf")
            self._begun = True
        if not blank:
            self._take_field(line)
            return None
        if self._size > self._limit:
            self.dropped += 1
            event = None
        else:
            event = self._event()
        self._data, self._name, self._size = [], b"", 0
        return event

    def _take_field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value

    def _event(self) -> Event | None:
        if not self._data:
            return None
        return Event(b"\n".join(self._data).decode("utf-8", "replace"), self._name.decode("utf-8", "replace"))
