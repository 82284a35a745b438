"""Where the verifier runs, and which image it runs in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchflow.task.load import load_task
from benchflow.task.model import parse_config
from benchflow.task.separate import judge_of, verifier_box, verifier_mode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEP_FILES: dict[str, str | bytes | None] = {"steps/one/instruction.md": "First."}
STEP = '[[steps]]\nname = "one"\n'
SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'
TASK_IMAGE = '[verifier.environment]\ndocker_image = "task-image"\n'
STEP_IMAGE = '[steps.verifier.environment]\ndocker_image = "step-image"\n'


@pytest.mark.parametrize(
    ("toml", "mode"),
    [
        ("", "shared"),
        (SEPARATE, "separate"),
        ("[verifier.environment]\n", "separate"),
        (STEP, "shared"),
        (SEPARATE + STEP, "separate"),
        (SEPARATE + STEP + '[steps.verifier]\nenvironment_mode = "shared"\n', "shared"),
        (STEP + STEP_IMAGE, "separate"),
    ],
)
def test_mode(write_task: Callable[..., Path], toml: str, mode: str) -> None:
    task = load_task(write_task({"task.toml": toml, **STEP_FILES}))
    step = task.steps[0] if task.steps else None
    assert verifier_mode(task.config, step.config if step else None) == mode
    assert (verifier_box(task, step) is None) == (mode == "shared")


@pytest.mark.parametrize(
    ("toml", "files", "image", "folder", "brings_tests"),
    [
        (TASK_IMAGE + STEP + STEP_IMAGE, ["steps/one/tests/Dockerfile"], "step-image", "steps/one/tests", True),
        (TASK_IMAGE + STEP, ["steps/one/tests/Dockerfile", "tests/Dockerfile"], None, "steps/one/tests", True),
        (TASK_IMAGE + STEP, ["tests/Dockerfile"], "task-image", "tests", True),
        (SEPARATE + STEP, ["tests/docker-compose.yaml"], None, "tests", True),
        (TASK_IMAGE, ["tests/Dockerfile"], "task-image", "tests", True),
        (SEPARATE, ["tests/Dockerfile"], None, "tests", True),
        (SEPARATE + '[environment]\ndocker_image = "agent-image"\n', [], "agent-image", "environment", False),
        (SEPARATE, [], None, "environment", False),
    ],
)
def test_image_precedence(
    write_task: Callable[..., Path], toml: str, files: list[str], image: str | None, folder: str, brings_tests: bool
) -> None:
    path = write_task({"task.toml": toml, **STEP_FILES, **dict.fromkeys(files, "FROM debian\n")})
    task = load_task(path)
    box = verifier_box(task, task.steps[0] if task.steps else None)
    assert box is not None
    assert (box.config.docker_image, box.folder, box.brings_tests) == (image, path / folder, brings_tests)


def test_a_box_inherits_the_system_of_the_agent_unless_it_says_otherwise(write_task: Callable[..., Path]) -> None:
    windows = '[environment]\nos = "windows"\n[verifier.environment]\ncpus = 2\n'
    task = load_task(write_task({"task.toml": windows, "tests/test.bat": ""}, name="a"))
    box = verifier_box(task)
    assert box is not None
    assert (box.config.os, box.config.cpus) == ("windows", 2)
    task = load_task(write_task({"task.toml": windows + 'os = "linux"\n'}, name="b"))
    box = verifier_box(task)
    assert box is not None
    assert box.config.os == "linux"


def test_a_step_without_a_type_is_scored_like_the_task() -> None:
    config, _ = parse_config(
        {
            "verifier": {"type": "llm-judge"},
            "steps": [{"name": "a"}, {"name": "b", "verifier": {"type": "test-script"}}],
        }
    )
    assert config is not None
    assert config.steps is not None
    assert judge_of(config) == judge_of(config, config.steps[0]) == config.verifier.judge
    assert judge_of(config, config.steps[1]) is None
