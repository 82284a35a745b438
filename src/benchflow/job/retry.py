"""What happens after a rollout: keep its result, try again, or stop the job. Pure decisions by cause.

A rollout is tried again when its failure says that this may help and nothing was measured: it was lost, or it failed
before its agent began. An agent that failed at its work was scored as it stood, and that is its result. A cause that
every other rollout would meet as well stops the job once, instead of losing them one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchflow.job.config import RetryConfig
    from benchflow.job.row import Row

BEFORE_WORK = ("setup", "environment_setup", "agent_setup")
"""Phases in which an agent has done nothing yet."""

DISK_FLOOR_MB = 512
"""Free space below which nothing more is started: results that cannot be written are lost."""


@dataclass(frozen=True, slots=True)
class Halt:
    """Why nothing more is started. With `model`, that holds for this model alone and the others go on."""

    message: str
    model: str | None = None


def retry_wait(row: Row, retries: int, config: RetryConfig) -> float | None:
    """Seconds to wait before another try, or None to keep the result; `retries` is how many there were already."""
    error = row.error
    if error is None or not error.retryable or retries >= config.max_retries or row.passed:
        return None
    if row.scored and error.phase not in BEFORE_WORK:
        return None
    return config.wait(retries + 1)


def halt_of(row: Row, *, backend_problem: str, disk_free_mb: int) -> Halt | None:
    """Whether what `row` met is met by every other rollout too.

    `backend_problem` is what the sandbox's backend says when it is asked after a loss; empty when it answers.
    """
    error = row.error
    if error is None or row.scored:
        return None
    if row.cut_by_job:
        return out_of_money(error.message)
    if disk_free_mb < DISK_FLOOR_MB:
        return disk_full(disk_free_mb)
    if error.boundary == "sandbox" and (backend_problem or error.kind == "SandboxUnavailable"):
        return Halt(f"the sandbox does not work any more: {backend_problem or error.message}")
    if error.boundary == "model" and not error.retryable:
        return model_refused(row.model, error.message)
    return None


def model_refused(model: str | None, why: str) -> Halt:
    return Halt(f"the model {model or ''} cannot be used: {why}; put that right, then resume the job", model)


def out_of_money(why: str) -> Halt:
    return Halt(f"{why}; to go on, resume the job with more: --max-job-cost or --max-job-tokens")


def disk_full(free_mb: int) -> Halt:
    return Halt(f"only {free_mb} MB are free where results are written; make room, then resume the job")
