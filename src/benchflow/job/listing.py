"""Jobs at a glance. A job that has a summary is read from it alone, however many rollouts it has."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchflow.job.score import Score, score
from benchflow.job.store import SUMMARY, is_held, settled
from benchflow.job.summary import total_usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class JobInfo:
    """One job. `state` is `died` when nobody runs it any more and it did not say how it ended."""

    path: Path
    state: str
    created_at: str
    agents: Sequence[str]
    models: Sequence[str]
    tasks: int
    score: Score
    usage: Mapping[str, float | None]

    def to_json(self) -> dict[str, object]:
        return {**dataclasses.asdict(self), "name": self.path.name, "path": str(self.path)}


def job_info(job_dir: Path) -> JobInfo:
    """What is known of a job. Raises ConfigError when its folder cannot be read."""
    try:
        document: dict[str, Any] = json.loads((job_dir / SUMMARY).read_bytes())
        counts = {**document["score"], "interval": tuple(document["score"]["interval"])}
        state = str(document["state"])
        return JobInfo(
            path=job_dir,
            state="died" if state == "running" and not is_held(job_dir) else state,
            created_at=str(document["created_at"]),
            agents=document["agents"],
            models=document["models"],
            tasks=int(document["tasks"]),
            score=Score(**counts),
            usage=document["usage"],
        )
    except (OSError, ValueError, LookupError, TypeError):
        return _counted(job_dir)


def _counted(job_dir: Path) -> JobInfo:
    rows = settled(job_dir)
    return JobInfo(
        path=job_dir,
        state="running" if is_held(job_dir) else "unknown",
        created_at=min((row.finished_at for row in rows), default=""),
        agents=sorted({row.agent for row in rows}),
        models=sorted({row.model for row in rows if row.model}),
        tasks=len({row.task for row in rows}),
        score=score(rows),
        usage=total_usage(rows),
    )
