"""Reads a trajectory back, also one that is still being written or whose writer was killed.

A torn last line is left out; a line that is not an event, which only foreign hands can have put there, becomes a note.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchflow.trajectory.events import event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from benchflow.trajectory.events import Event


def read_events(path: Path) -> Iterator[Event]:
    """The events of a file, texts that were written in pieces joined. A file that does not exist has none."""
    return join_pieces(_lines(path))


def _lines(path: Path) -> Iterator[Event]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            if not line.strip():
                continue
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                found = None
            if isinstance(found, dict) and isinstance(found.get("type"), str):
                yield found
            else:
                yield event("note", about="unreadable line", data=number)


def join_pieces(events: Iterable[Event]) -> Iterator[Event]:
    """The same events with every piece that `continues` a text put behind the one before it."""
    held: Event | None = None
    texts: list[str] = []
    for one in events:
        text = one.get("text")
        if held is not None and one.get("continues") is True and one["type"] == held["type"] and isinstance(text, str):
            texts.append(text)
            continue
        if held is not None:
            yield {**held, "text": "".join(texts)}
            held = None
        if one["type"] in ("message", "thought") and isinstance(text, str):
            held, texts = one, [text]
        else:
            yield one
    if held is not None:
        yield {**held, "text": "".join(texts)}


@dataclass(slots=True)
class ToolCall:
    """One tool call with everything that was reported about it, later reports over earlier ones."""

    id: str
    started: str
    ended: str
    title: str = ""
    kind: str = "other"
    status: str = "pending"
    arguments: object = None
    output: object = None
    content: list[object] = field(default_factory=list)
    locations: list[object] = field(default_factory=list)


_ENDED = ("completed", "failed")


def tool_calls(events: Iterable[Event]) -> list[ToolCall]:
    """The tool calls among `events`, in the order of their first sight. Fields of a wrong type are left out.

    Agents count their calls anew in each session: a call is told by its role and its id, until it has ended.
    """
    calls: list[ToolCall] = []
    open_calls: dict[tuple[object, str], ToolCall] = {}
    for one in events:
        call_id = one.get("tool_call_id")
        if one["type"] not in ("tool_call", "tool_call_update") or not isinstance(call_id, str):
            continue
        time = str(one.get("ts", ""))
        key = (one.get("actor"), call_id)
        if key not in open_calls or (one["type"] == "tool_call" and open_calls[key].status in _ENDED):
            open_calls[key] = ToolCall(id=call_id, started=time, ended=time)
            calls.append(open_calls[key])
        call = open_calls[key]
        call.ended = time
        for name in ("title", "kind", "status"):
            if isinstance(value := one.get(name), str):
                setattr(call, name, value)
        for name in ("content", "locations"):
            if isinstance(value := one.get(name), list):
                setattr(call, name, value)
        call.arguments = one.get("arguments", call.arguments)
        call.output = one.get("output", call.output)
        shown = _terminal_text(one.get("meta"))
        if shown and (call.output is None or isinstance(call.output, str)):
            call.output = (call.output or "") + shown
    return calls


def _terminal_text(meta: object) -> str:
    """What a command of the agent's own printed since the last update, where an agent reports that beside the call."""
    for key in ("terminal_output", "terminal_output_delta"):
        output = meta.get(key) if isinstance(meta, dict) else None
        if isinstance(output, dict) and isinstance(output.get("data"), str):
            return str(output["data"])
    return ""
