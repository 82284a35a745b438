"""Metrics and comparisons as text. Plain lines, so that they can be read in a log as well as on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchflow.task.problem import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchflow.job.metrics import Group, Metrics
    from benchflow.job.score import Score

EXAMPLE = 100
"""Characters of an error's message that are shown."""


def summary_text(metrics: Metrics) -> str:
    overall = metrics.overall
    rollouts = overall.score.total
    lines = [f"{metrics.benchmark}: {rollouts} rollouts of {overall.tasks} tasks", score_line(overall.score)]
    if overall.suspect:
        lines.append(f"{overall.suspect} of the passes are suspect: {percent(overall.trusted_share)} without them")
    if overall.tampering:
        found = ", ".join(f"{number} {severity}" for severity, number in overall.tampering.items())
        lines.append(f"tampering: {found} (tampering.json of each rollout says what)")
    if len(metrics.groups) > 1:
        lines += ["", *table_lines([("agent and model", *_HEAD), *(_group_cells(group) for group in metrics.groups)])]
    if len(metrics.tags) > 1:
        lines += ["", *table_lines([("tag", *_HEAD), *(_group_cells(group) for group in metrics.tags)])]
    shown = [
        (group.name, str(one.k), percent(one.at), percent(one.hat), str(one.tasks))
        for group in metrics.groups
        for one in group.pass_k
    ]
    if len(shown) > len(metrics.groups):
        lines += ["", *table_lines([("agent and model", "k", "pass@k", "pass^k", "tasks"), *shown])]
    phases = [(name, f"{seconds:.1f} s", _money(overall.cost.get(name))) for name, seconds in overall.seconds.items()]
    lines += ["", *table_lines([("phase", "each rollout", "cost"), *phases])]
    lines += ["", f"tool calls  {overall.tool_calls:.1f} per rollout", f"usage       {usage_line(overall.usage)}"]
    if overall.errors:
        cells = [
            (error.boundary, error.kind, str(error.count), str(error.lost), _first_line(error.example))
            for error in overall.errors
        ]
        lines += ["", *table_lines([("boundary", "error", "count", "lost", "such as"), *cells])]
    return "\n".join(lines)


def score_line(score: Score) -> str:
    """`62 passed of 89 scored, 0 lost: 69.7 % [59.5, 78.3], mean reward 0.712`."""
    low, high = score.interval
    text = f"{score.passed} passed of {score.scored} scored, {score.lost} lost"
    if missing := score.total - score.scored - score.lost:
        text += f", {missing} not run"
    if score.mean_reward is None:
        return text
    share = f"{percent(score.share)} [{low * 100:.1f}, {high * 100:.1f}]"
    return f"{text}: {share}, mean reward {score.mean_reward:.3f}"


def usage_line(usage: object) -> str:
    """Tokens and cost, as far as anybody said."""
    known = usage if isinstance(usage, dict) else {}
    parts = [
        f"{known[key]:,.0f} {word}"
        for key, word in (
            ("input_tokens", "tokens in"),
            ("output_tokens", "tokens out"),
            ("cached_tokens", "tokens from cache"),
        )
        if known.get(key) is not None
    ]
    if known.get("cost_usd") is not None:
        parts.append(f"${known['cost_usd']:,.2f}")
    elif known.get("priced_usd"):
        parts.append(f"at least ${known['priced_usd']:,.2f}")
    return ", ".join(parts) or "unknown"


def percent(share: float) -> str:
    return f"{share * 100:.1f} %"


_HEAD = ("passed", "suspect", "scored", "lost", "share", "95 %", "mean reward", "tool calls", "time", "cost")


def _group_cells(group: Group) -> tuple[str, ...]:
    score = group.score
    low, high = score.interval
    mean = "-" if score.mean_reward is None else f"{score.mean_reward:.3f}"
    counts = str(score.passed), str(group.suspect), str(score.scored), str(score.lost)
    spent = f"{group.tool_calls:.1f}", f"{group.seconds['total']:.1f} s", _money(group.cost["agent_execution"])
    return group.name, *counts, percent(score.share), f"[{low * 100:.1f}, {high * 100:.1f}]", mean, *spent


def _money(cost: float | None) -> str:
    return "-" if cost is None else f"${cost:,.4f}" if cost < 1 else f"${cost:,.2f}"


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with their columns under each other; the first row is the head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _first_line(text: str) -> str:
    shown = printable(text.partition("\n")[0])
    return shown if len(shown) <= EXAMPLE else f"{shown[:EXAMPLE]}..."
