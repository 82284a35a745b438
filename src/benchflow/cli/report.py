"""Rollouts and plans as text on the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from benchflow.cli.console import console, print_json
from benchflow.task.problem import printable
from benchflow.trajectory.reader import read_events, tool_calls

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchflow.job.listing import JobInfo
    from benchflow.rollout.plan import Plan

TITLE = 80
"""Characters of a tool call's title or of a prompt that are shown."""


def print_rollout(folder: Path, result: dict[str, Any]) -> None:
    """One rollout for a person: outcome, phases with times, tool calls, error with its boundary."""
    out = console()
    if "rewards" not in result:
        out.print(Text(f"{folder} has not ended (no result.json)"))
    out.print(Text(f"{result.get('task')}  {result.get('agent')}  {result.get('model') or ''}", style="bold"))
    rewards = result.get("rewards") or {}
    verdict = "PASS" if result.get("passed") else "FAIL"
    out.print(Text(f"[{verdict}] " + (", ".join(f"{k} {v:g}" for k, v in rewards.items()) or "no reward")))
    level, user = result.get("verify_level"), result.get("sandbox_user")
    out.print(Text(f"sandbox {result.get('sandbox')} · agent user {user or 'root'} · verified {level or 'not'}"))
    for note in result.get("notes") or []:
        out.print(_clean(f"note: {note}"))
    if error := result.get("error"):
        out.print(Text(f"{error['boundary']} error in {error['phase']}: {error['kind']}", style="red"))
        out.print(_clean(str(error["message"]), keep_lines=True))
    phases = Table("phase", "seconds", box=None, pad_edge=False)
    for name, seconds in (result.get("timing") or {}).items():
        phases.add_row(name, f"{seconds:.2f}")
    out.print(phases)
    calls = tool_calls(read_events(folder / "trajectory" / "acp_trajectory.jsonl"))
    table = Table("tool call", "kind", "status", box=None, pad_edge=False)
    for call in calls:
        table.add_row(_clean(call.title)[:TITLE], _clean(call.kind), _clean(call.status))
    if calls:
        out.print(table)


def print_plan(plan: Plan) -> None:
    """What would run: one row per prompt."""
    out = console()
    out.print(Text(f"{plan.task.name} in {plan.backend.name} ({plan.backend_reason})"))
    table = Table("step", "scene", "role", "agent", "model", "session", "prompt", box=None, pad_edge=False)
    for act in plan.acts:
        for turn in act.turns:
            first = turn.prompt.strip().split("\n", 1)[0]
            session = "new" if turn.opens_session else "same"
            role = turn.role
            table.add_row(act.name, turn.scene, role.name, role.agent, role.model or "", session, _clean(first)[:TITLE])
    out.print(table)


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
