"""One rollout of a job, from its plan to its row. Whatever happens becomes a row; only cancellation is passed on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from benchflow.errors import BenchflowError
from benchflow.job.row import lost_row, row_of
from benchflow.rollout.lifecycle import Rollout

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.gateway.server import Gateway
    from benchflow.job.plan import Measurement
    from benchflow.job.row import Row
    from benchflow.job.scheduler import Work
    from benchflow.rollout.record import Observer


async def perform(
    work: Work, measurement: Measurement, job_dir: Path, observer: Observer | None, gateway: Gateway | None = None
) -> Row:
    """Run it into `job_dir`, labelled so that it is found again. Its models are asked through the job's `gateway`."""
    measurement_id, attempt = work.key
    config = replace(
        measurement.config,
        jobs_dir=job_dir.parent,
        job_name=job_dir.name,
        labels={
            "measurement": measurement_id,
            "played": measurement.played,
            "attempt": attempt,
            "try": work.tried,
        },
    )
    rollout = Rollout(config, plan=measurement.plan, observer=observer, gateway=gateway)
    try:
        result = await rollout.run()
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - becomes the row's error, attributed to its boundary
        return _failed(rollout, error) or lost_row(
            work.key, work.tried, measurement.task, measurement.agent, measurement.model, error
        )
    return row_of(result.to_json(), result.rollout_dir)


def _failed(rollout: Rollout, error: Exception) -> Row | None:
    """Write the result of a rollout that failed before its sandbox; None when it has no folder or the disk is full."""
    try:
        rollout.record.failed(error)
        rollout.record.finish()
    except (BenchflowError, OSError):
        return None
    result = rollout.record.result
    return row_of(result.to_json(), result.rollout_dir)
