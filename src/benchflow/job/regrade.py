"""Scoring what agents left again, with the verifiers as they are now: which rollouts of a job, and how one of them.

No agent is run. A rollout that is not the same performance any more, or whose agent's work was not kept, is left out
and named. An interrupted go is taken up where it was: `JobLock.regrading` says since when it goes on.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.job.row import lost_row, row_of, settle
from benchflow.rollout.regrade import regrade, why_not
from benchflow.rollout.result import ErrorInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchflow.job.lock import JobLock, Key, LockedMeasurement
    from benchflow.job.plan import Measurement
    from benchflow.job.row import Row
    from benchflow.job.scheduler import Work
    from benchflow.rollout.record import Observer

SHOWN = 20
"""Rollouts that a refusal names; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Regrades:
    """What is scored again, by the rollout of the job that it becomes, and why some are left out."""

    rows: Mapping[Key, Row] = field(repr=False)
    left_out: Sequence[str] = ()


def choose(lock: JobLock, measurements: Mapping[str, Measurement], rows: Iterable[Row]) -> Regrades:
    """Everything that ended and can be scored again. Raises ConfigError when nothing can."""
    listed = list(rows)
    ended = settle(listed)
    performances = settle_performances(listed)
    chosen: dict[Key, Row] = {}
    left_out: list[str] = []
    done = 0
    for key in lock.keys:
        row = ended.get(key) or performances.get((measurements[key[0]].played, key[1]))
        if row is None:
            continue
        if row.key == key and lock.regrading and row.regraded_at >= lock.regrading:
            done += 1
        elif reason := _reason(row):
            left_out.append(f"{row.rollout_dir.name}: {reason}")
        else:
            chosen[key] = row
    if not chosen and not done:
        _refuse(left_out)
    return Regrades(chosen, left_out)


def settle_performances(rows: Iterable[Row]) -> dict[Key, Row]:
    """The try that counts for each attempt at a performance, whichever verifier scored it."""
    known = [dataclasses.replace(row, measurement=row.played) for row in rows if row.played]
    originals = {row.rollout_dir: row for row in rows}
    return {key: originals[row.rollout_dir] for key, row in settle(known).items()}


def relocked(lock: JobLock, found: Mapping[str, Measurement]) -> JobLock:
    """The lock with the measurements as they are now; `found` is by the names that the lock has for them."""
    tasks = {
        one.task: dataclasses.replace(lock.tasks[one.task], digest=found[one.id].digest) for one in lock.measurements
    }
    return dataclasses.replace(
        lock,
        tasks=tasks,
        measurements=[dataclasses.replace(one, id=found[one.id].id) for one in lock.measurements],
        regrading=lock.regrading or datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def same_performance(found: Measurement, locked: LockedMeasurement) -> Measurement:
    """Raises ConfigError when more than the verifier has changed."""
    if found.id == locked.id or (locked.played and found.played == locked.played):
        return found
    raise ConfigError(
        f"{locked.task}: more than its verifier has changed since the job began, so what {locked.agent} did cannot be"
        " graded again",
        hint="restore it, or run `bench eval create` with the same --job-name to measure it as it is now",
    )


async def play_again(work: Work, measurement: Measurement, row: Row, job: str, observer: Observer | None) -> Row:
    """Score one rollout again. Whatever happens becomes a row; only cancellation is passed on."""
    if observer:
        observer.phase("verifier")
    labels: dict[str, str | int] = {"measurement": work.key[0], "attempt": work.key[1], "played": measurement.played}
    try:
        document = await regrade(row.rollout_dir, measurement.config, measurement.plan, job=job, labels=labels)
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - becomes the row's error, attributed to its boundary
        lost = lost_row(work.key, work.tried, row.task, row.agent, row.model, error)
        return dataclasses.replace(lost, rollout_dir=row.rollout_dir, error=ErrorInfo.of(error, "verifier"))
    return row_of(document, row.rollout_dir)


def _reason(row: Row) -> str:
    """Why a row cannot be scored again; empty when it can."""
    try:
        document = json.loads((row.rollout_dir / "result.json").read_bytes())
    except (OSError, ValueError) as error:
        return f"its result cannot be read: {error}"
    return why_not(row.rollout_dir, document)


def _refuse(left_out: Sequence[str]) -> None:
    if not left_out:
        raise ConfigError("nothing of this job has ended, so there is nothing to grade again")
    more = [f"- and {len(left_out) - SHOWN} more"] if len(left_out) > SHOWN else []
    lines = "\n".join([*(f"- {line}" for line in left_out[:SHOWN]), *more])
    raise ConfigError(f"none of the {len(left_out)} rollouts can be graded again:\n{lines}")
