"""Any results' folder as a page: a rollout's, or a job's with the list of its rollouts. Raises ConfigError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from benchflow.errors import ConfigError
from benchflow.job.listing import job_info
from benchflow.job.metrics_text import score_line
from benchflow.job.store import is_job, settled, unreadable
from benchflow.view.facts import rewards_text, usage_text
from benchflow.view.load import read_result, read_rollout
from benchflow.view.markup import document, label, link, table
from benchflow.view.page import render, verdict

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.job.row import Row

ROLLOUT = "rollout/"
"""Where the pages of a job's rollouts are served."""


def page_of(folder: Path, *, served: bool = False) -> str:
    """The page of a folder. A job's has links to its rollouts where those are `served` as well."""
    return _job_page(folder, served=served) if is_job(folder) else render(read_rollout(folder))


def rollout_page(job: Path, name: str) -> str:
    """The page of one rollout of a job, with the way back. Raises ConfigError when the job has none of that name."""
    known = {place.name: place for place in job.iterdir() if "__" in place.name and place.is_dir()}
    if name not in known:
        raise ConfigError(f"{job} has no rollout {name!r:.100}")
    return render(read_rollout(known[name]), back="../")


def _job_page(folder: Path, *, served: bool) -> str:
    info = job_info(folder)
    rows = sorted(settled(folder), key=lambda row: (row.task, row.agent, row.model or "", row.attempt))
    lines = [_line(row, served=served) for row in rows]
    lines += [_unfinished(place, served=served) for place in sorted(folder.glob("*__*")) if _runs(place)]
    problems = "".join(f"<p class=note>{label(problem)}</p>" for problem in unreadable(folder))
    head = (
        f"<header><h1>{label(folder.resolve().name)}</h1><p class=verdict>{label(score_line(info.score))}</p>"
        f"<p class=stop>{label(info.state)} · {label(usage_text(dict(info.usage)))}</p>{problems}</header>"
    )
    columns = ("", "task", "agent", "model", "attempt", "reward", "time", "tool calls", "folder")
    return document(folder.resolve().name, head + table(lines, "rollouts", columns))


def _line(row: Row, *, served: bool) -> list[str]:
    shown: dict[str, Any] = {"rewards": row.rewards, "passed": row.passed, "trust": row.trust}
    reward = rewards_text(row.rewards)
    if row.error:
        reward += f" · {row.error.boundary}: {row.error.kind}"
    words = [label(text) for text in (row.task, row.agent, row.model or "", row.attempt, reward)]
    counts = [f"{row.seconds:.1f} s", str(row.n_tool_calls)]
    return [verdict(shown), *words, *counts, _way(row.rollout_dir.name, served=served)]


def _unfinished(place: Path, *, served: bool) -> list[str]:
    config = read_result(place)
    words = [label(config.get(key) or "") for key in ("task", "agent", "model")]
    return [verdict({}), *words, "", "", "", "", _way(place.name, served=served)]


def _runs(place: Path) -> bool:
    return (place / "config.json").is_file() and not (place / "result.json").exists()


def _way(name: str, *, served: bool) -> str:
    return link(ROLLOUT + quote(name, safe=""), label(name)) if served else label(name)
