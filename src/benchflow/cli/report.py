"""Rollouts and plans as text on the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from benchflow.cli.console import console, print_json
from benchflow.job.row import trust_of
from benchflow.task.problem import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchflow.job.listing import JobInfo
    from benchflow.rollout.plan import Plan
    from benchflow.view.load import Seen
    from benchflow.view.story import Item

SHOWN = 30
"""Findings of tampering that are shown; all are in tampering.json."""

TITLE = 80
"""Characters of a tool call's title or of a prompt that are shown."""

EVIDENCE = 8_000
"""Characters of an error's message that are shown, from its end."""


def print_rollout(folder: Path, result: dict[str, Any]) -> None:
    """One rollout for a person: its outcome, what is known of it, and what happened, one line each."""
    from benchflow.view import facts
    from benchflow.view.load import read_rollout

    seen = read_rollout(folder, result, branches=False)
    if "rewards" not in result:
        _say(f"{folder} has not ended (no result.json)")
    _say(str(result.get("task")), style="bold")
    _say(f"[{facts.verdict(result)}] {facts.rewards_text(result.get('rewards'))}")
    if result.get("passed") and trust_of(result) != "trusted":
        _say("the pass is suspect: see what was found and the notes", style="yellow")
    _print_error(seen)
    for note in result.get("notes") or []:
        _say(f"note: {note}")
    _print_pairs("", facts.facts(result))
    _print_pairs("phases", [(name, f"{seconds:.2f} s") for name, seconds in facts.phases(result)])
    _print_pairs("steps", facts.steps(result))
    _print_pairs("rounds", facts.rounds(result))
    tree = [("  " * (len(one.path) - 1) + one.folder.rsplit("/", 1)[-1], one.text) for one in facts.branches(result)]
    _print_pairs("branches", tree)
    _print_tampering(seen)
    _print_story(seen)


def _print_error(seen: Seen) -> None:
    """Whose fault it was, with what the failing side said last."""
    from benchflow.view.facts import error_head

    if not isinstance(error := seen.result.get("error"), dict):
        return
    _say(error_head(error), style="red")
    console().print(_clean(str(error.get("message", ""))[-EVIDENCE:], keep_lines=True))
    if seen.logs:
        _say(f"more in {', '.join(name for name, _ in seen.logs)}")


def _print_pairs(title: str, pairs: Sequence[tuple[str, str]]) -> None:
    if not pairs:
        return
    if title:
        _title(title)
    table = Table.grid(padding=(0, 2))
    for name, text in pairs:
        table.add_row(_clean(name), _clean(text))
    console().print(table)


def _print_tampering(seen: Seen) -> None:
    """What was found that could have influenced the score, the gravest first."""
    table = Table("path", "severity", "done", "what", box=None, pad_edge=False, header_style="dim")
    for one in seen.findings[:SHOWN]:
        count = one.get("count", 1)
        more = f" (and {count - 1} more)" if isinstance(count, int) and count > 1 else ""
        said = f"{one.get('family')}: {one.get('detail') or ''}{more}"
        cells = [str(one.get(name)) for name in ("path", "severity", "action")]
        table.add_row(_clean(cells[0])[:TITLE], _clean(cells[1]), _clean(cells[2]), _clean(said))
    if table.row_count:
        _title("tampering")
        console().print(table)
    if (left := len(seen.findings) - SHOWN) > 0:
        _say(f"and {left} more in tampering.json")


def _print_story(seen: Seen) -> None:
    """Prompts with where they come from, tool calls, messages between roles and rounds, in their order."""
    from benchflow.view.story import roles_of, tell

    items = tell(seen.events, seen.prompts)
    roles = roles_of(items)
    width = max(map(len, roles)) if len(roles) > 1 else 0
    told = [(item, words) for item in items if (words := _words(item))]
    if told:
        _title("what happened")
    for item, (kind, text) in told:
        role = f"{item.actor:<{width}}  " if width else ""
        _say(f"{role}{kind:<9}  {text}"[: width + 2 * TITLE], style="bold" if item.kind == "round" else "")


def _words(item: Item) -> tuple[str, str] | None:
    """What an item is and says, in a line; None for what is only in the page."""
    from benchflow.view.story import one_line

    match item.kind:
        case "prompt":
            sources = ", ".join(source for source, _ in item.parts) or item.label
            said = one_line(item.parts[-1][1] if item.parts else item.content)
            return "prompt", f"({sources} → {item.actor}) {said}" if sources else said
        case "tool":
            state = f"  [{item.call.kind}, {item.call.status}]" if item.call else ""
            return "tool call", one_line(item.label)[:TITLE] + state
        case "mail":
            return "message", f"{item.label}: {one_line(item.content)}" if item.content else item.label
        case "error":
            return "error", one_line(item.content)
        case "round":
            return "round", item.label.removeprefix("round ")
    return None


def _title(text: str) -> None:
    console().print(Text(f"\n{text}", style="bold"))


def _say(text: str, style: str = "") -> None:
    console().print(_clean(text), style=style, soft_wrap=True)


def print_plan(plan: Plan) -> None:
    """What would run: one row per prompt of a scene's first round."""
    out = console()
    out.print(Text(f"{plan.task.name} in {plan.backend.name} ({plan.backend_reason})"))
    table = Table("step", "scene", "role", "agent", "model", "session", "prompt", box=None, pad_edge=False)
    for act in plan.acts:
        for turn in (turn for turn in act.turns if turn.round == 1):
            first = turn.prompt.strip().split("\n", 1)[0]
            session = "new" if turn.opens_session else "same"
            role = turn.role
            table.add_row(act.name, turn.scene, role.name, role.agent, role.model or "", session, _clean(first)[:TITLE])
    out.print(table)
    rounds = {turn.scene: turn for act in plan.acts for turn in act.turns if turn.round > 1}
    for name, last in rounds.items():
        until = f", until {last.until}" if last.until else ""
        out.print(_clean(f"scene {name}: up to {last.round} rounds{until}"))


def print_jobs(jobs: Sequence[JobInfo]) -> None:
    """One line per job."""
    from benchflow.job.metrics_text import percent, table_lines

    lines = [["job", "state", "agents", "models", "tasks", "passed", "scored", "lost", "total", "share", "95 %"]]
    for job in jobs:
        score = job.score
        low, high = score.interval
        share = [percent(score.share), f"[{low * 100:.1f}, {high * 100:.1f}]"] if score.scored else ["-", "-"]
        words = [job.path.name, job.state, ", ".join(job.agents), ", ".join(job.models)]
        counts = [job.tasks, score.passed, score.scored, score.lost, score.total]
        lines.append([printable(text) for text in (*words, *map(str, counts), *share)])
    _print_lines(table_lines(lines))


def print_job(folder: Path, *, as_json: bool) -> None:
    """Every rollout of a job that counts, and what they add up to."""
    from benchflow.job.listing import job_info
    from benchflow.job.metrics_text import score_line, table_lines
    from benchflow.job.store import settled, unreadable

    info = job_info(folder)
    rows = sorted(settled(folder), key=lambda row: (row.task, row.agent, row.model or "", row.attempt))
    problems = unreadable(folder)
    if as_json:
        print_json({**info.to_json(), "unreadable": problems, "rollouts": [row.to_json() for row in rows]})
        return
    lines = [["task", "agent", "model", "attempt", "tries", "reward", "seconds", "tool calls", "folder"]]
    for row in rows:
        reward = (
            f"{row.reward:g}" if row.reward is not None else f"lost: {row.error.kind if row.error else 'no reward'}"
        )
        reward += " (suspect)" if row.passed and row.trust != "trusted" else ""
        words = [printable(text) for text in (row.task, row.agent, row.model or "")]
        numbers = [str(row.attempt), str(row.tried), reward, f"{row.seconds:.1f}", str(row.n_tool_calls)]
        lines.append([*words, *numbers, row.rollout_dir.name])
    remarks = [f"unreadable: {printable(problem)}" for problem in problems]
    _print_lines([f"{folder}: {info.state}", *table_lines(lines), *remarks, score_line(info.score)])


def _print_lines(lines: Sequence[str]) -> None:
    """As they are: a table of thousands is neither wrapped nor cut."""
    sys.stdout.write("\n".join(lines) + "\n")


def _clean(text: str, *, keep_lines: bool = False) -> Text:
    """Text of an agent or a task with nothing in it that a terminal would act on."""
    kept = "\n\t" if keep_lines else ""
    return Text("".join(char if char.isprintable() or char in kept else "\ufffd" for char in text))
