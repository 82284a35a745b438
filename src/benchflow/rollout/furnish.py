"""What a task wants done in its sandbox before anyone acts: files, commands of its own, a wait until it is healthy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.rollout.health import wait_healthy
from benchflow.sandbox.base import FileData
from benchflow.task.env import resolve_env

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchflow.rollout.plan import Act
    from benchflow.sandbox.base import Sandbox
    from benchflow.task.task import Task

INSTRUCTION = "instruction.md"


async def furnish(sandbox: Sandbox, task: Task, environ: Mapping[str, str]) -> None:
    """Make a new sandbox what the task expects to find; templates are filled in from `environ`.

    Raises ConfigError when a set-up command of the task fails, SandboxError when the sandbox does or gets not healthy.
    """
    environment = task.config.environment
    await _lay_environment(sandbox, task)
    for command in environment.setup_commands:
        env = resolve_env(command.env, environ, where="environment.setup_commands.env")
        await _must(sandbox, command.command, user=command.user, cwd=command.cwd, timeout=command.timeout_sec, env=env)
    if environment.healthcheck:
        await wait_healthy(sandbox, environment.healthcheck)


async def prepare_act(sandbox: Sandbox, task: Task, act: Act, *, owner: str | int | None) -> None:
    """Lay out what belongs to one act; what a step brings is `owner`'s. Raises as `furnish` does."""
    instruction = act.step.instruction if act.step else task.instruction
    await _lay_instruction(sandbox, instruction, (turn.prompt for turn in act.turns))
    if act.step is None:
        return
    if act.step.workdir:
        await sandbox.put(act.step.workdir, sandbox.workdir, owner=owner)
    if act.step.setup_script:
        await _must(sandbox, "bash ./setup.sh", user=None, cwd=sandbox.workdir, timeout=None)
    if act.step.config.healthcheck:
        await wait_healthy(sandbox, act.step.config.healthcheck)


async def _lay_environment(sandbox: Sandbox, task: Task) -> None:
    """A prebuilt image without a build file of its own gets the whole of environment/ in its workdir."""
    folder = task.environment_dir
    prebuilt = task.config.environment.docker_image is not None
    if prebuilt and folder.is_dir() and not (folder / "Dockerfile").exists() and any(folder.iterdir()):
        await sandbox.put(folder, sandbox.workdir)


async def _lay_instruction(sandbox: Sandbox, instruction: str, prompts: Iterable[str]) -> None:
    """Put the instruction into the workspace where a prompt sends its reader there to find it, unless it is there."""
    place = f"{sandbox.workdir.rstrip('/')}/{INSTRUCTION}"
    if not any(place in prompt for prompt in prompts):
        return
    if not (await sandbox.exec(["test", "-e", place], user=0, cwd="/")).ok:
        await sandbox.put({INSTRUCTION: FileData(instruction.encode(), 0o644)}, sandbox.workdir)


async def _must(
    sandbox: Sandbox,
    command: str,
    *,
    user: str | int | None,
    cwd: str | None,
    timeout: float | None,
    env: Mapping[str, str] | None = None,
) -> None:
    ended = await sandbox.exec(command, user=user, cwd=cwd, timeout=timeout, env=env)
    if not ended.ok:
        how = "timed out" if ended.timed_out else f"exited {ended.exit_code}"
        words = (ended.stdout + ended.stderr).decode("utf-8", "replace").strip()[-500:]
        raise ConfigError(f"the task's set-up command {command!r} {how}: {words}")
