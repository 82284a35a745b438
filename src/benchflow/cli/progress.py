"""A rollout as it happens, one line per phase, round and tool call, on standard error.

Where several roles act, every line says whose it is.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchflow.cli.console import err_console

if TYPE_CHECKING:
    from benchflow.trajectory.events import Event

PHASE_NAMES = {
    "environment_setup": "sandbox",
    "agent_setup": "agent",
    "agent_execution": "working",
    "verifier": "verifying",
}
LINE = 100
"""Characters of a tool call's title that are shown."""


class LiveLines:
    """Prints to a terminal or a log; every line says how long the rollout has run."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._last = ""

    def phase(self, name: str) -> None:
        if name != self._last:
            self._last = name
            self._line(f"[bold]{PHASE_NAMES.get(name, name)}[/]")

    def event(self, event: Event) -> None:
        who = f"{event['actor']}: " if event.get("actor") else ""
        if event["type"] == "tool_call":
            self._text(f"  ● {who}{event.get('title') or event.get('kind') or 'tool call'}")
        elif event["type"] == "error":
            self._text(f"  ! {who}{event.get('message', '')}")
        elif event["type"] == "prompt" and who:
            self._text(f"  {event['actor']} is asked")
        elif (number := round_of(event)) is not None:
            self._text(f"round {number}")
        elif sent := _sent(event):
            self._text(f"  {sent}")

    def _line(self, markup: str) -> None:
        err_console().print(f"[dim]{time.monotonic() - self._began:7.1f} s[/]  {markup}", soft_wrap=True)

    def _text(self, text: str) -> None:
        from rich.markup import escape

        self._line(escape(printable(text)[:LINE]))


def round_of(event: Event) -> str | None:
    """The round that begins with an event, if one does: `1`, or `1 of SCENE`."""
    data = event.get("data")
    if event["type"] != "note" or event.get("about") != "round" or not isinstance(data, dict):
        return None
    return f"{data.get('round')} of {data['scene']}" if data.get("scene") else str(data.get("round"))


def _sent(event: Event) -> str:
    """Who wrote to whom, if an event is that."""
    data = event.get("data")
    if event["type"] != "note" or event.get("about") != "message" or not isinstance(data, dict):
        return ""
    return f"✉ {data.get('from')} → {data.get('to')}"


def printable(text: str) -> str:
    """The first line of a text with nothing in it that a terminal would act on."""
    first = text.split("\n", 1)[0]
    return "".join(char if char.isprintable() else "\ufffd" for char in first)
