"""The disk that jobs take: how much it is, when it is too much, and which images nobody needs any more.

What counts is the folder of all jobs and the caches of the sandbox's backend. It is measured in full once, and then by
what is added to it. Images are removed one by one, when no rollout of this job is going to need them, and only those
that were built here and that nobody has used since.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

from benchflow.job.retry import Halt
from benchflow.job.size import human_size, tree_bytes
from benchflow.rollout.world import image_source

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from benchflow.job.plan import Measurement
    from benchflow.sandbox.base import Backend

CACHES_EVERY = 30.0
"""Seconds between two looks at the size of a backend's caches while a job runs."""


class Disk:
    """What the jobs folder and the caches hold, against a limit in megabytes; without one nothing is measured."""

    def __init__(self, jobs_dir: Path, limit_mb: int | None) -> None:
        self._jobs_dir = jobs_dir
        self._limit_mb = limit_mb
        self._jobs = 0
        self._caches = 0
        self._looked = 0.0

    async def measure(self, backend: Backend) -> None:
        """Look at everything. Raises SandboxError."""
        if self._limit_mb is not None:
            self._jobs = await asyncio.to_thread(tree_bytes, self._jobs_dir)
            await self._look_at_caches(backend)

    async def added(self, folder: Path, backend: Backend) -> None:
        """Count a new folder of results, and now and then the caches. Raises SandboxError."""
        if self._limit_mb is None:
            return
        if folder.name:
            self._jobs += await asyncio.to_thread(tree_bytes, folder)
        if time.monotonic() - self._looked > CACHES_EVERY:
            await self._look_at_caches(backend)

    def problem(self) -> Halt | None:
        """Why nothing more may be started."""
        if self._limit_mb is None or self._jobs + self._caches <= self._limit_mb * 1_000_000:
            return None
        return Halt(
            f"{self._jobs_dir} holds {human_size(self._jobs)} and the sandbox's caches {human_size(self._caches)}, more"
            f" than the {human_size(self._limit_mb * 1e6)} of --max-disk; remove jobs that you do not need or run"
            " `bench cleanup --images`, then resume the job, or resume it with a larger --max-disk"
        )

    async def _look_at_caches(self, backend: Backend) -> None:
        self._caches = sum((await backend.disk_use()).values())
        self._looked = time.monotonic()


class FinishedImages:
    """Removes the image of a task when the last of its rollouts in this job has ended."""

    def __init__(self, planned: Iterable[Measurement]) -> None:
        self._left = Counter(one.task for one in planned)

    async def ended(self, one: Measurement) -> list[str]:
        """Count one rollout that will not be tried again; the names of the images that went. Raises SandboxError."""
        now = time.time()
        self._left[one.task] -= 1
        if self._left[one.task]:
            return []
        task = one.plan.task
        image = image_source(task.config.environment, task.environment_dir)
        # Whoever has used the image since then is somebody else.
        return list(await one.plan.backend.prune(only=image, older_than=time.time() - now))
