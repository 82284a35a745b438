"""What happens in a job, as it happens: to `events.jsonl`, and to whoever watches.

Every event has `at` and `event`; those of a rollout also say which (`task`, `agent`, `model`, `attempt`, `try`).

    planned    total, finished, to_do        the job begins
    remark     message
    started    rollout_dir
    finished   rollout_dir, reward, passed, error, seconds, usage
    retrying   wait, error
    halted     message                       nothing more is started for this cause
    draining                                 nothing more is started because the user said so
    ended      state, score
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from benchflow.job.plan import Measurement
    from benchflow.job.scheduler import Work
    from benchflow.rollout.record import Observer

FILE = "events.jsonl"

type JobEvent = dict[str, Any]


class JobObserver(Protocol):
    """Whoever watches a job live, such as the terminal. Calls must return at once and not raise."""

    def job_event(self, event: JobEvent) -> None: ...

    def watch(self, work: Work, measurement: Measurement) -> Observer | None:
        """Whoever watches one rollout of the job, if anybody does."""
        ...


class EventLog:
    """Appends events to the job's folder and passes them on. A line is written whole or, in a crash, not at all."""

    def __init__(self, folder: Path, observer: JobObserver | None) -> None:
        self._file = (folder / FILE).open("ab", buffering=0)
        self._observer = observer

    def emit(self, name: str, **about: object) -> None:
        event: JobEvent = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": name, **about}
        self._file.write(json.dumps(event, default=str).encode() + b"\n")
        if self._observer:
            self._observer.job_event(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
