"""Where the verifier runs: beside the agent's files, or in a box of its own.

A separate verifier's image is the first of: the step's image, the step's `tests/Dockerfile`, the task's image for
the verifier, the task's `tests/Dockerfile`, the agent's own environment. Only in the last case are the tests
uploaded; any other image brings them along in `/tests`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.task.environment import EnvironmentConfig
    from benchflow.task.model import TaskConfig
    from benchflow.task.steps import StepConfig
    from benchflow.task.task import Step, Task
    from benchflow.task.verifier import Judge, VerifierMode

COMPOSE_FILE = "docker-compose.yaml"
BUILD_FILES = ("Dockerfile", COMPOSE_FILE)


@dataclass(frozen=True, slots=True)
class VerifierBox:
    """The sandbox of a separate verifier: its configuration, its build folder, and whether it brings the tests."""

    config: EnvironmentConfig
    folder: Path
    brings_tests: bool


def verifier_mode(config: TaskConfig, step: StepConfig | None = None) -> VerifierMode:
    """What the step says, else what the task says, else shared."""
    return (step.verifier.own_mode if step else None) or config.verifier.own_mode or "shared"


def judge_of(config: TaskConfig, step: StepConfig | None = None) -> Judge | None:
    """The judge that scores a task or a step; None when a test script does. A step without a type has the task's."""
    verifier = step.verifier if step and "type" in step.verifier.model_fields_set else config.verifier
    return verifier.judge if verifier.type == "llm-judge" else None


def verifier_box(task: Task, step: Step | None = None) -> VerifierBox | None:
    """The box of the verifier of a task or of one step; None when it shares the agent's."""
    return find_box(
        task.config,
        step.config if step else None,
        environment_dir=task.environment_dir,
        tests_dir=task.tests_dir,
        step_tests_dir=step.tests_dir if step and step.tests_dir != task.tests_dir else None,
    )


def find_box(
    config: TaskConfig,
    step: StepConfig | None,
    *,
    environment_dir: Path,
    tests_dir: Path,
    step_tests_dir: Path | None,
) -> VerifierBox | None:
    """`verifier_box` for a task that is being loaded; `step_tests_dir` is the step's own, if it has one."""
    if verifier_mode(config, step) == "shared":
        return None
    step_box = step.verifier.environment if step else None
    task_box = config.verifier.environment
    base = step_box or task_box or config.environment
    for box, folder in ((step_box, step_tests_dir), (task_box, tests_dir)):
        if box is not None and box.docker_image:
            update = {"docker_image": box.docker_image}
            return VerifierBox(base.model_copy(update=update), folder or tests_dir, brings_tests=True)
        if folder is not None and any((folder / name).is_file() for name in BUILD_FILES):
            return VerifierBox(base.model_copy(update={"docker_image": None}), folder, brings_tests=True)
    system = base.os if "os" in base.model_fields_set else config.environment.os
    fallback = {"docker_image": config.environment.docker_image, "os": system}
    return VerifierBox(base.model_copy(update=fallback), environment_dir, brings_tests=False)
