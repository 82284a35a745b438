"""What a task needs from whoever runs it: declared data, compared with what a runtime can do before anything starts.

A need is never an error of the task. Each names the key or the file that asks for it, so that a refusal can say why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchflow.task.network import NetworkPolicy, effective
from benchflow.task.problem import dotted
from benchflow.task.separate import COMPOSE_FILE, judge_of, verifier_box

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.task.environment import EnvironmentConfig
    from benchflow.task.problem import KeyPath
    from benchflow.task.task import Step, Task

Capability = Literal[
    "windows",
    "gpu",
    "tpu",
    "cpus",
    "memory",
    "storage",
    "no-network",
    "allowlist",
    "network-change",
    "compose",
    "separate-verifier",
    "llm-judge",
    "multi-step",
    "mcp",
    "skills",
    "prior-context",
    "healthcheck",
    "setup-commands",
    "collect-hooks",
    "artifacts",
    "memory-score",
]


@dataclass(frozen=True, slots=True)
class Need:
    """One capability, how much of it, and what asks for it."""

    capability: Capability
    detail: str
    where: str

    def __str__(self) -> str:
        return f"{self.capability} ({self.detail}, from {self.where})"


def required_capabilities(task: Task) -> list[Need]:
    """Everything `task` needs, in a fixed order; a capability appears once for each place that asks for it."""
    return [*_box(task.config.environment, ("environment",)), *_files(task), *_phases(task), *_scoring(task)]


def _need(capability: Capability, detail: object, *path: str | int) -> Need:
    return Need(capability, str(detail), dotted(path))


def _box(box: EnvironmentConfig, path: KeyPath) -> Iterator[Need]:
    if box.os == "windows":
        yield _need("windows", box.os, *path, "os")
    if box.gpus:
        types = f" of type {' or '.join(box.gpu_types)}" if box.gpu_types else ""
        yield _need("gpu", f"{box.gpus}{types}", *path, "gpus")
    if box.tpu:
        yield _need("tpu", f"{box.tpu.chips} chips of {box.tpu.type}", *path, "tpu")
    if box.cpus is not None:
        yield _need("cpus", box.cpus, *path, "cpus")
    if box.memory_mb is not None:
        yield _need("memory", f"{box.memory_mb} MB", *path, "memory_mb")
    if box.storage_mb is not None:
        yield _need("storage", f"{box.storage_mb} MB", *path, "storage_mb")
    yield from _network(box.network, (*path, "network_mode"))
    if box.mcp_servers:
        yield _need("mcp", ", ".join(server.name for server in box.mcp_servers), *path, "mcp_servers")
    if box.skills_dir:
        yield _need("skills", box.skills_dir, *path, "skills_dir")
    if box.healthcheck:
        yield _need("healthcheck", box.healthcheck.command, *path, "healthcheck")
    if box.setup_commands:
        yield _need("setup-commands", len(box.setup_commands), *path, "setup_commands")


def _network(policy: NetworkPolicy, path: KeyPath) -> Iterator[Need]:
    if policy.mode == "allowlist":
        yield _need("allowlist", ", ".join(policy.hosts) or "nothing", *path)
    elif policy.mode == "no-network":
        yield _need("no-network", "no network", *path)


def _files(task: Task) -> Iterator[Need]:
    if (task.environment_dir / COMPOSE_FILE).is_file():
        yield Need("compose", "more than one container", f"environment/{COMPOSE_FILE}")
    if task.trajectory is not None:
        yield Need("prior-context", "an ATIF trajectory", task.trajectory.relative_to(task.path).as_posix())
    if task.steps:
        yield _need("multi-step", f"{len(task.steps)} steps", "steps")
    if task.config.artifacts:
        yield _need("artifacts", len(task.config.artifacts), "artifacts")


def _phases(task: Task) -> Iterator[Need]:
    """Overrides of the network: what they ask for, and that it changes while the sandbox lives."""
    config, baseline = task.config, task.config.environment.network
    tables: list[tuple[KeyPath, NetworkPolicy]] = [(("agent",), effective(baseline, config.agent))]
    if verifier_box(task) is None:
        tables.append((("verifier",), effective(baseline, config.verifier)))
    for index, step in enumerate(task.steps):
        tables.append((("steps", index, "agent"), effective(baseline, step.config.agent, config.agent)))
        if verifier_box(task, step) is None:
            tables.append((("steps", index, "verifier"), effective(baseline, step.config.verifier, config.verifier)))
    for path, policy in tables:
        if policy != baseline:
            yield _need("network-change", f"from {baseline.mode} to {policy.mode}", *path, "network_mode")
            yield from _network(policy, (*path, "network_mode"))


def _scoring(task: Task) -> Iterator[Need]:
    steps: list[Step | None] = [*task.steps] or [None]
    for index, step in enumerate(steps):
        verifier = step.config.verifier if step else task.config.verifier
        path: KeyPath = ("steps", index, "verifier") if step else ("verifier",)
        if (box := verifier_box(task, step)) is not None:
            yield _need("separate-verifier", box.config.docker_image or box.folder.name, *path, "environment_mode")
            if box.config is not task.config.environment:
                yield from _box(box.config, (*path, "environment"))
        if (judge := judge_of(task.config, step.config if step else None)) is not None:
            yield _need("llm-judge", judge.rubric_path, *path, "judge")
        if verifier.collect:
            yield _need("collect-hooks", len(verifier.collect), *path, "collect")
        if verifier.memory.expected_skills is not None:
            yield _need("memory-score", len(verifier.memory.expected_skills), *path, "memory")
        if step and step.config.healthcheck:
            yield _need("healthcheck", step.config.healthcheck.command, "steps", index, "healthcheck")
        if step and step.config.artifacts:
            yield _need("artifacts", len(step.config.artifacts), "steps", index, "artifacts")
