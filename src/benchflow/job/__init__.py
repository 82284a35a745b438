"""Many runs: the plan, the scheduler, retry and resume, the store, and what they all add up to."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchflow.job.config import JobConfig, RetryConfig
    from benchflow.job.job import Job
    from benchflow.job.metrics import collect_metrics
    from benchflow.job.summary import JobResult

_HOME = {
    "Job": "benchflow.job.job",
    "JobConfig": "benchflow.job.config",
    "JobResult": "benchflow.job.summary",
    "RetryConfig": "benchflow.job.config",
    "collect_metrics": "benchflow.job.metrics",
}

__all__ = ["Job", "JobConfig", "JobResult", "RetryConfig", "collect_metrics"]


def __getattr__(name: str) -> Any:
    if home := _HOME.get(name):
        return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'benchflow.job' has no attribute {name!r}")
