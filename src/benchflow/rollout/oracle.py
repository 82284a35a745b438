"""The built-in agents: `oracle` runs the task's own solution, `nop` does nothing. Both are trusted: they are ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchflow.errors import AgentTimeout, ConfigError
from benchflow.rollout.world import contents
from benchflow.task.env import resolve_env
from benchflow.trajectory.events import event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchflow.sandbox.base import Sandbox
    from benchflow.task.task import Step, Task
    from benchflow.trajectory.events import Event

SOLUTION = "/solution"


def check_solution(task: Task) -> None:
    """Raises ConfigError when the oracle has nothing to run."""
    for step in task.steps or (None,):
        folder = step.solution_dir if step else task.solution_dir
        if not (folder / task.solve_script).is_file():
            raise ConfigError(f"{folder / task.solve_script} does not exist, so the oracle has nothing to run")


async def run_oracle(
    sandbox: Sandbox,
    task: Task,
    step: Step | None,
    *,
    environ: Mapping[str, str],
    env: Mapping[str, str],
    timeout: float | None,
    on_event: Callable[[Event], None],
    log: Callable[[str], None],
) -> None:
    """Run solve.sh as the image's user; what it says goes to `log`, and how it ended to the trajectory.

    Raises AgentTimeout when it takes longer than `timeout` seconds. A failing script is not an error: the verifier
    says what it was worth.
    """
    await sandbox.put(contents(task.upload_files("solution", step)), SOLUTION)
    script = f"{SOLUTION}/{task.solve_script}"
    call_id = f"oracle-{step.name}" if step else "oracle"
    on_event(event("tool_call", tool_call_id=call_id, title=script, kind="execute", arguments={"command": script}))
    limit = task.config.solution.timeout_sec or timeout
    ended = await sandbox.exec(
        ["/bin/sh", "-c", f"exec {script}"],  # also runs one that has no first line to say what runs it
        env={**env, **resolve_env(task.config.solution.env, environ, where="solution.env")},
        timeout=limit,
    )
    output = (ended.stdout + ended.stderr).decode("utf-8", "replace")
    log(output)
    status = "completed" if ended.ok else "failed"
    on_event(event("tool_call_update", tool_call_id=call_id, status=status, output=output[-20_000:]))
    if ended.timed_out:
        raise AgentTimeout(f"{script} did not end within {limit:g} s")
    if ended.exit_code:
        on_event(event("error", kind="ExitCode", message=f"{script} exited {ended.exit_code}"))
