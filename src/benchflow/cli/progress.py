"""A rollout as it happens, one line per phase and per tool call, on standard error."""

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
        if event["type"] == "tool_call":
            self._text(f"  ● {event.get('title') or event.get('kind') or 'tool call'}")
        elif event["type"] == "error":
            self._text(f"  ! {event.get('message', '')}")

    def _line(self, markup: str) -> None:
        err_console().print(f"[dim]{time.monotonic() - self._began:7.1f} s[/]  {markup}", soft_wrap=True)

    def _text(self, text: str) -> None:
        from rich.markup import escape

        self._line(escape(printable(text)[:LINE]))


def printable(text: str) -> str:
    """The first line of a text with nothing in it that a terminal would act on."""
    first = text.split("\n", 1)[0]
    return "".join(char if char.isprintable() else "\ufffd" for char in first)
