"""Appends events to a JSON Lines file as they arrive, so that a crash, a kill or a time-out loses nothing.

Every event is handed to the kernel before `append` returns, with one exception: the many small chunks an agent streams
of one message or thought are gathered to one event. They are written when another kind of event comes, when they
are `GATHER_SECONDS` old or `GATHER_CHARS` long, and at `flush` and `close`; the piece that follows then says
`continues`. Memory stays flat: nothing is kept but the chunks being gathered.

An agent must not fill the disk, nor the memory of who reads the file: what comes when it has `TRAJECTORY_LIMIT` bytes
is counted and not kept, and a last note says so.

The file is ASCII (other characters are escaped), so that anything an agent can send is kept, lone surrogates included.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from typing import TYPE_CHECKING, Self

from benchflow.errors import BenchflowError
from benchflow.trajectory.events import event as new_event
from benchflow.trajectory.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

    from benchflow.trajectory.events import Event

TRAJECTORY_LIMIT = 256 * 1024 * 1024
"""Bytes that a trajectory may have."""

GATHER_SECONDS = 0.5
"""Longest time that streamed text waits in memory. Counted inside a running event loop; outside one, until `flush`."""

GATHER_CHARS = 64 * 1024
"""Longest text that waits in memory."""

_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


class TrajectoryWriter:
    """The live writer of one trajectory file.

    Its methods raise BenchflowError when the file cannot be written, and never for what an event contains.
    `n_events` counts the lines written, `n_dropped` the events for which there was no room, `n_tool_calls` the tool
    calls among both. None of `secrets` reaches the file.
    """

    def __init__(self, path: Path, *, secrets: Iterable[str] = (), limit: int | None = None) -> None:
        self.path = path
        self.n_events = 0
        self.n_dropped = 0
        self.n_tool_calls = 0
        self._limit = TRAJECTORY_LIMIT if limit is None else limit
        self._redactor = Redactor(secrets)
        self._gathering = _Gathering()
        self._timer: asyncio.TimerHandle | None = None
        self._failed: BenchflowError | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise BenchflowError(f"cannot write {path}: {error.strerror}") from error
        self._size = os.fstat(self._fd).st_size
        self._torn = _ends_torn(self._fd)

    def append(self, event: Event) -> None:
        """Write one event, or gather it if it is a chunk of a text that still grows."""
        if self._failed is not None:
            raise self._failed
        text = event.get("text")
        if event["type"] not in ("message", "thought") or not isinstance(text, str):
            self.flush()
            self._write(event)
            return
        if not self._gathering.fits(event):
            self.flush()
        self._gathering.add(event, text)
        if self._timer is None:
            self._start_timer()
        if self._gathering.chars > GATHER_CHARS:
            self._flush_piece()

    def hide(self, *secrets: str) -> None:
        """Keep these secrets, too, out of what is written from now on."""
        self._redactor = Redactor([*self._redactor.secrets, *secrets])

    def flush(self) -> None:
        """Write what was gathered; the text that was gathered ends here."""
        self._stop_timer()
        last = self._gathering.take()
        self._gathering = _Gathering()
        if last is not None:
            self._write(last)

    def close(self) -> None:
        """Flush and close the file. Idempotent."""
        if self._fd < 0:
            return
        try:
            self.flush()
        finally:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _flush_piece(self) -> None:
        """Write what was gathered of a text that may go on."""
        self._stop_timer()
        piece = self._gathering.take(self._redactor)
        if piece is not None:
            self._write(piece)

    def _start_timer(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._timer = loop.call_later(GATHER_SECONDS, self._on_timer)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        try:
            self._flush_piece()
        except BenchflowError as error:
            self._failed = error

    def _write(self, event: Event) -> None:
        self.n_tool_calls += event["type"] == "tool_call"
        line = _line(event, self._redactor)
        if self._size + len(line) > self._limit:
            self.n_dropped += 1
            if self.n_dropped > 1:
                return
            about = f"the trajectory is full: what no longer fits into {self._limit} bytes is not kept"
            line = _line(new_event("note", about=about), self._redactor)
        data = memoryview(b"\n" + line if self._torn else line)
        try:
            while data:
                data = data[os.write(self._fd, data) :]
                self._torn = bool(data)
        except OSError as error:
            raise BenchflowError(
                f"cannot write {self.path}: {error.strerror}", hint="free space on that disk and run it again"
            ) from error
        self._size += len(line)
        self.n_events += 1


class _Gathering:
    """The chunks of one text that were not written yet, and what the event of them will say beside the text."""

    def __init__(self) -> None:
        self.chars = 0
        self._head: Event | None = None
        self._texts: list[str] = []
        self._continues = False

    def fits(self, event: Event) -> bool:
        """Whether this chunk is of the same text: the same in all but the text and the time."""
        if self._head is None:
            return True
        if len(event) != len(self._head) + 1:
            return False
        return all(key in ("ts", "text") or self._head.get(key) == value for key, value in event.items())

    def add(self, event: Event, text: str) -> None:
        if not self._texts:
            self._head = {key: value for key, value in event.items() if key != "text"}
        self._texts.append(text)
        self.chars += len(text)

    def take(self, redactor: Redactor | None = None) -> Event | None:
        """The event of what was gathered, or None when that is no text at all, which some agents send.

        With a redactor the text may go on: what may be the beginning of a secret stays behind.
        """
        if self._head is None:
            return None
        text, rest = "".join(self._texts), ""
        if redactor is not None:
            text = redactor.text(text)
            cut = len(text) - redactor.unsettled(text)
            text, rest = text[:cut], text[cut:]
        self._texts, self.chars = [rest] if rest else [], len(rest)
        if not text:
            return None
        piece = {**self._head, "text": text}
        if self._continues:
            piece["continues"] = True
        self._continues = True
        return piece


def _ends_torn(fd: int) -> bool:
    """Whether an earlier writer died within a line: what is appended must then start a new one."""
    size = os.fstat(fd).st_size
    return size > 0 and os.pread(fd, 1, size - 1) != b"\n"


def _line(event: Event, redactor: Redactor) -> bytes:
    """One event as a line, without secrets. What cannot be written as JSON is replaced by a note about it."""
    try:
        text = _json(event, redactor)
    except (ValueError, TypeError, RecursionError) as error:
        text = _encode(new_event("note", about="event that cannot be written as JSON", data=str(error)))
    return text.encode("ascii") + b"\n"


def _json(event: Event, redactor: Redactor) -> str:
    try:
        text = _encode(event)
    except ValueError:
        event = {key: _finite(value) for key, value in event.items()}
        text = _encode(event)
    return _encode(redactor.event(event)) if redactor.found_in(text) else text


def _finite(value: object) -> object:
    """The same value with the numbers JSON does not have (1e999 reads as infinity) as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value
