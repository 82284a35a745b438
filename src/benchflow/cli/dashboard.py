"""A job while it runs, on standard error: a board on a terminal, one line per event elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from benchflow.cli.console import err_console
from benchflow.cli.progress import PHASE_NAMES, LiveLines, printable, round_of
from benchflow.cli.sandbox import human_age
from benchflow.job.metrics_text import percent, usage_line
from benchflow.job.stats import wilson
from benchflow.job.summary import USAGE

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from rich.console import Console, ConsoleOptions, RenderResult

    from benchflow.job.events import JobEvent
    from benchflow.job.plan import Measurement
    from benchflow.job.resume import JobPlan
    from benchflow.job.scheduler import Work
    from benchflow.rollout.record import Observer
    from benchflow.trajectory.events import Event

REFRESH = 4
"""How often a second the board is drawn."""

ROWS = 16
"""Running rollouts that the board shows; the rest are counted."""

ACTION = 60
"""Characters of a rollout's last action that are shown."""

NAME = 24
"""Characters of a role's name, and of a round's."""


class Lines:
    """One line per event, for logs and for many rollouts."""

    def __init__(self) -> None:
        self._finished = self._total = 0
        self._ended: set[tuple[str, int]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def watch(self, work: Work, measurement: Measurement) -> Observer | None:  # noqa: ARG002 - the protocol's
        return None

    def job_event(self, event: JobEvent) -> None:
        if event["event"] == "planned":
            self._finished, self._total = event["finished"], event["total"]
        elif event["event"] == "finished":
            self._ended.add((event["measurement"], event["attempt"]))
        if line := event_line(event, self._finished + len(self._ended), self._total):
            err_console().print(Text(line), soft_wrap=True)


class Single(Lines):
    """A job of one rollout: its phases and tool calls as they happen."""

    def watch(self, work: Work, measurement: Measurement) -> Observer | None:  # noqa: ARG002 - the protocol's
        return LiveLines()

    def job_event(self, event: JobEvent) -> None:
        if event["event"] in ("remark", "retrying", "halted"):
            super().job_event(event)


def event_line(event: JobEvent, done: int, total: int) -> str:
    """What a line says of an event; nothing for those that are not worth one."""
    which = f"{event.get('task')} {event.get('agent')} {event.get('model') or ''}".strip()
    if event.get("attempt", 1) > 1:
        which += f" #{event['attempt']}"
    text = ""
    match event["event"]:
        case "planned":
            text = f"{event['to_do']} of {event['total']} rollouts to do"
        case "started":
            text = f"started {which}"
        case "finished":
            error = event["error"]
            said = f"reward {event['reward']:g}" if event["reward"] is not None else "lost"
            why = f" ({error['boundary']}: {error['message']})" if error else ""
            text = f"{done}/{total} {which}: {said} in {event['seconds']:.1f} s{why}"
        case "retrying":
            text = f"again in {event['wait']:.0f} s: {which} ({event['error']['message']})"
        case "halted":
            text = f"starting nothing more: {event['message']}"
        case "remark":
            text = event["message"]
    return printable(text)


class Watcher:
    """What one running rollout is doing."""

    def __init__(self, work: Work, measurement: Measurement) -> None:
        self.name = measurement.task if work.key[1] == 1 else f"{measurement.task} #{work.key[1]}"
        self.player = f"{measurement.agent} {measurement.model or ''}".strip()
        self.began = time.monotonic()
        self.action = ""
        self._phase = ""
        self._round = ""
        self._role = ""

    @property
    def doing(self) -> str:
        """The phase, the round and whose turn it is, as far as there are such."""
        return " · ".join(part for part in (self._phase, self._round, self._role) if part)

    def phase(self, name: str) -> None:
        self._phase = PHASE_NAMES.get(name, name)

    def event(self, event: Event) -> None:
        if isinstance(role := event.get("actor"), str):
            self._role = printable(role)[:NAME]
        if (number := round_of(event)) is not None:
            self._round = printable(f"round {number}")[:NAME]
        if event["type"] == "tool_call":
            self.action = printable(str(event.get("title") or event.get("kind") or "tool call"))[:ACTION]


class Dashboard:
    """The board. Events change its state; a thread of the terminal library draws it."""

    def __init__(self, plan: JobPlan) -> None:
        self._total = plan.lock.total
        again = set(plan.to_do)
        ended = [plan.ended[key] for key in plan.lock.keys if key in plan.ended and key not in again]
        self._passed = sum(row.passed for row in ended)
        self._scored = sum(row.scored for row in ended)
        self._lost: set[tuple[str, int]] = set()
        self._fresh = 0
        self._usage: dict[str, float | None] = dict.fromkeys(USAGE)
        self._running: dict[tuple[str, int], Watcher] = {}
        self._began = time.monotonic()
        self._note = ""
        self._live = Live(self, console=err_console(), refresh_per_second=REFRESH, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def watch(self, work: Work, measurement: Measurement) -> Observer:
        idle = not self._running
        self._running[work.key] = watcher = Watcher(work, measurement)
        self._lost.discard(work.key)
        if idle:
            # Short work could be over before the next drawing.
            self._live.refresh()
        return watcher

    def job_event(self, event: JobEvent) -> None:
        if event["event"] == "finished":
            self._finished(event)
        elif event["event"] in ("remark", "retrying", "halted", "draining"):
            self._note = event_line(event, 0, 0) or "finishing what runs"

    def _finished(self, event: JobEvent) -> None:
        key = event["measurement"], event["attempt"]
        self._running.pop(key, None)
        self._fresh += 1
        if event["reward"] is None:
            self._lost.add(key)
        else:
            self._scored += 1
            self._passed += event["passed"]
        for name in USAGE:
            if (used := event["usage"].get(name)) is not None:
                self._usage[name] = (self._usage[name] or 0) + used

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        done = self._scored + len(self._lost)
        elapsed = time.monotonic() - self._began
        low, high = wilson(self._passed / max(1, self._scored), self._scored)
        head = Table.grid(padding=(0, 1))
        left = f"about {human_age(elapsed / self._fresh * (self._total - done))} left" if self._fresh else ""
        head.add_row(
            ProgressBar(total=self._total, completed=done, width=24),
            Text(f"{done}/{self._total}"),
            Text(f"{self._passed} passed", style="green"),
            Text(f"{self._scored - self._passed} failed", style="red"),
            Text(f"{len(self._lost)} lost", style="yellow"),
            Text(f"{percent(self._passed / max(1, self._scored))} [{low * 100:.0f}, {high * 100:.0f}]"),
            Text(f"{human_age(elapsed)} {left}", style="dim"),
        )
        yield head
        if any(value is not None for value in self._usage.values()):
            yield Text(usage_line(self._usage), style="dim")
        yield self._board(list(self._running.values()))
        if self._note:
            yield Text(self._note, style="dim", overflow="ellipsis", no_wrap=True)

    def _board(self, running: list[Watcher]) -> Table:
        table = Table(box=None, pad_edge=False)
        for column in ("running", "agent", "phase", "for", "last action"):
            table.add_column(column, no_wrap=True, overflow="ellipsis", header_style="dim")
        for one in running[:ROWS]:
            since = human_age(time.monotonic() - one.began)
            table.add_row(Text(one.name), Text(one.player), Text(one.doing), since, Text(one.action))
        if len(running) > ROWS:
            table.add_row(f"and {len(running) - ROWS} more")
        return table
