"""Waits until a sandbox says that it is ready."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from benchflow.errors import SandboxError

if TYPE_CHECKING:
    from benchflow.sandbox.base import Sandbox
    from benchflow.task.environment import Healthcheck


async def wait_healthy(sandbox: Sandbox, check: Healthcheck) -> None:
    """Return at the first success; failures within the start period do not count.

    Raises SandboxError after `retries` failures in a row, with what the command last said.
    """
    started = time.monotonic()
    failures = 0
    while True:
        answer = await sandbox.exec(check.command, timeout=check.timeout_sec)
        if answer.ok:
            return
        starting = time.monotonic() - started < check.start_period_sec
        failures = 0 if starting else failures + 1
        if not starting and failures >= max(1, check.retries):
            said = (answer.stderr or answer.stdout).decode("utf-8", "replace").strip()
            raise SandboxError(
                f"the healthcheck failed {failures} times: {check.command!r} "
                + ("timed out" if answer.timed_out else f"exited {answer.exit_code}")
                + (f": {said[-500:]}" if said else ""),
                backend=sandbox.backend,
                sandbox=sandbox.id,
                phase="healthcheck",
            )
        await asyncio.sleep(check.start_interval_sec if starting else check.interval_sec)
