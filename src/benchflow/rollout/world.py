"""From a task to the sandbox it asks for: pure translation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from benchflow.sandbox.base import PIDS_LIMIT, BuildContext, FileData, ImageRef, Limits, Network, Owner, SandboxSpec
from benchflow.task.env import resolve_env
from benchflow.task.network import effective

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchflow.sandbox.base import Capabilities, ImageSource, Mount
    from benchflow.task.environment import EnvironmentConfig
    from benchflow.task.network import NetworkPolicy
    from benchflow.task.task import Step, Task


def sandbox_spec(
    task: Task,
    *,
    name: str,
    job: str,
    environ: Mapping[str, str],
    has: Capabilities | None = None,
    mounts: tuple[Mount, ...] = (),
    log: Callable[[str], None] | None = None,
) -> SandboxSpec:
    """The sandbox that the agent works in, with the limits that a backend which `has` these capabilities can keep.

    Raises ConfigError when a variable the task needs is not set.
    """
    environment = task.config.environment
    return SandboxSpec(
        image=image_source(environment, task.environment_dir),
        name=name,
        env=resolve_env(environment.env, environ, where="environment.env"),
        workdir=environment.workdir,
        network=agent_network(task),
        limits=limits(environment, has),
        mounts=mounts,
        owner=Owner(job=job, rollout=name),
        build_timeout=environment.build_timeout_sec,
        log=log,
    )


def workshop_spec(task: Task, *, name: str, job: str, log: Callable[[str], None] | None = None) -> SandboxSpec:
    """A sandbox to build an agent in for the task's image: that image and network, and nothing else of the task's."""
    environment = task.config.environment
    return SandboxSpec(
        image=image_source(environment, task.environment_dir),
        name=f"{name}-workshop",
        limits=Limits(pids=None),
        owner=Owner(job=job, rollout=name),
        build_timeout=environment.build_timeout_sec,
        log=log,
    )


def image_source(environment: EnvironmentConfig, folder: Path) -> ImageSource:
    return ImageRef(environment.docker_image) if environment.docker_image else BuildContext(folder)


MEMORY_SHARE = 0.8
"""Share of the host's memory that a sandbox may take whose task sets no limit: one must not take the others down."""


def _host_memory_mb() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20


def limits(environment: EnvironmentConfig, has: Capabilities | None = None) -> Limits:
    """The task's limits, and ours where it sets none, without what the backend cannot enforce (see `unenforced`)."""

    def keep[T](name: str, value: T) -> T | None:
        return value if has is None or name in has.limits else None

    return Limits(
        cpus=keep("cpus", environment.cpus),
        memory_mb=keep("memory", environment.memory_mb or int(MEMORY_SHARE * _host_memory_mb())),
        storage_mb=keep("storage", environment.storage_mb),
        pids=keep("pids", PIDS_LIMIT),
        gpus=environment.gpus or 0,
    )


def unenforced(environment: EnvironmentConfig, has: Capabilities) -> list[str]:
    """A remark for each limit that the task sets and the backend cannot keep, for the result."""
    wanted = {"cpus": environment.cpus, "memory": environment.memory_mb, "storage": environment.storage_mb}
    return [
        f"the task's limit {name} = {value} is not enforced: this sandbox cannot"
        for name, value in wanted.items()
        if value is not None and name not in has.limits
    ]


def agent_network(task: Task) -> Network:
    """What the agent may reach. Nothing is installed from inside, so its policy holds from the start."""
    return _network(effective(task.config.environment.network, task.config.agent))


def verifier_network(task: Task, step: Step | None) -> Network:
    step_override = step.config.verifier if step else None
    return _network(effective(task.config.environment.network, step_override, task.config.verifier))


def _network(policy: NetworkPolicy) -> Network:
    return Network(policy.mode, policy.hosts)


def contents(files: Sequence[tuple[Path, str]]) -> dict[str, FileData]:
    """Host files as they are put: by content and mode, under their relative paths.

    They become root's, but another user may have to run them: everyone may read and run what the owner here may, and
    run what is a shell script. Who must not is kept out of the folder.
    """
    return {relative: FileData(file.read_bytes(), _open_mode(file)) for file, relative in files}


def _open_mode(file: Path) -> int:
    mode = file.stat().st_mode & 0o777 | (0o111 if file.suffix == ".sh" else 0)
    owner = mode & 0o500
    return mode | owner >> 3 | owner >> 6
