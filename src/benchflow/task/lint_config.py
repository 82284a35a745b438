"""Advice about a valid configuration: keys that have no effect together, or not the one that was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchflow.task.document import find_document, read_document
from benchflow.task.problem import Issue, place, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.task.agent import AgentConfig
    from benchflow.task.artifacts import Artifact
    from benchflow.task.environment import EnvironmentConfig
    from benchflow.task.model import TaskConfig
    from benchflow.task.problem import KeyPath, Problem
    from benchflow.task.task import Task
    from benchflow.task.verifier import VerifierConfig


def lint_config(task: Task) -> list[Problem]:
    """Advice with the lines it is about. Raises Unreadable when the description has changed under us."""
    issues = list(advise(task.config))
    file = find_document(task.path)
    if not issues or file is None:
        return []
    return place(issues, file, read_document(file, task.path.resolve()).lines())


def advise(config: TaskConfig) -> Iterator[Issue]:
    """What looks wrong in a configuration that is right."""
    if config.multi_step_reward_strategy and not config.steps:
        yield _advice(("multi_step_reward_strategy",), "has no effect without [[steps]]", "steps", "remove it")
    yield from _agent(config.agent, ("agent",))
    yield from _box(config.environment, ("environment",))
    yield from _verifier(config.verifier, ("verifier",))
    yield from _artifacts(config.artifacts, ("artifacts",))
    for index, step in enumerate(config.steps or ()):
        yield from _agent(step.agent, ("steps", index, "agent"))
        yield from _verifier(step.verifier, ("steps", index, "verifier"))
        yield from _artifacts((*config.artifacts, *step.artifacts), ("steps", index, "artifacts"))


def _advice(path: KeyPath, what: str, expected: str, fix: str) -> Issue:
    return Issue(path, what, expected, fix, "no-effect", "warning")


def _agent(agent: AgentConfig, path: KeyPath) -> Iterator[Issue]:
    if agent.user is not None:
        what, fix = "is not used", f"remove it, and run the task with --sandbox-user {agent.user}"
        yield _advice((*path, "user"), what, "that the run says who agents are", fix)


def _box(box: EnvironmentConfig, path: KeyPath) -> Iterator[Issue]:
    if box.gpu_types and not box.gpus:
        yield _advice((*path, "gpu_types"), "has no effect without gpus", "gpus", "set gpus = 1, or remove it")
    if box.network_mode == "allowlist" and not box.allowed_hosts:
        what = "is an allowlist of nothing, so that nothing can be reached"
        yield _advice((*path, "network_mode"), what, "allowed_hosts", 'add hosts, or write "no-network"')
    if box.skills_dir and not box.skills_dir.startswith("/"):
        what = f"{show(box.skills_dir)} is relative"
        yield _advice((*path, "skills_dir"), what, "an absolute path inside the sandbox", "begin it with '/'")
    names = [server.name for server in box.mcp_servers]
    for index, name in enumerate(names):
        if name in names[index + 1 :]:
            what = f"a later server is also called {show(name)} and takes its place"
            yield _advice((*path, "mcp_servers", index, "name"), what, "different names", "rename or remove one")


def _verifier(verifier: VerifierConfig, path: KeyPath) -> Iterator[Issue]:
    if verifier.environment is not None:
        yield from _box(verifier.environment, (*path, "environment"))
    if "judge" in verifier.model_fields_set and verifier.type != "llm-judge":
        yield _advice(
            (*path, "judge"), 'has no effect without type = "llm-judge"', "that type", "set it, or remove this"
        )


def _artifacts(artifacts: tuple[Artifact, ...], path: KeyPath) -> Iterator[Issue]:
    """Of two that claim the same place the first wins, and the second is silently missing from the results."""
    claimed: list[str] = []
    for artifact in artifacts:
        claim = artifact.claims
        taken = [other for other in claimed if _overlap(claim, other)]
        if taken:
            what = f"{show(artifact.source)} is kept at {show(claim)}, which {show(taken[0])} has taken: it is skipped"
            yield _advice(path, what, "places that do not overlap", "set another destination")
        claimed.append(claim)


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")
