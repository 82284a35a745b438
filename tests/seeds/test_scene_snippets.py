"""The users' own scenes: as YAML and as Python they are the same steps, and they run as they are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchflow.job.yaml_config import job_from_yaml
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.plan import make_plan
from benchflow.rollout.scene import Role, Scene, Turn, compile_steps
from benchflow.rollout.yaml_config import read_yaml, rollout_config
from benchflow.sandbox.registry import backends_in_use

if TYPE_CHECKING:
    from .conftest import RunSnippet

DOCUMENTS = sorted((Path(__file__).parents[1] / "job" / "documents").glob("*.yaml"))

USER_SIMULATION = """
from benchflow.trial import TrialConfig, Scene, Role, Turn

config = TrialConfig(
    task_path=Path("tasks/my-task"),
    scenes=[
        Scene(name="interactive-assist",
              roles=[
                  Role("user", "gemini", "gemini-3.1-flash-lite-preview"),
                  Role("assistant", "claude-agent-acp", "claude-sonnet-4-6"),
              ],
              turns=[
                  Turn("user", "You are simulating a user. Read /app/instruction.md..."),
                  Turn("assistant"),  # None = use instruction.md
                  Turn("user", "Check the assistant's work against /solution/..."),
                  Turn("assistant", "The user provided additional guidance..."),
              ]),
    ],
    environment="daytona",
)
result = await bf.run(config)
"""
REVIEW = """
from benchflow.trial import TrialConfig, Scene, Role, Turn
scene = Scene(
    name="coder-reviewer",
    roles=[
        Role("coder", "gemini", "gemini-3.1-flash-lite-preview"),
        Role("reviewer", "gemini", "gemini-3.1-flash-lite-preview"),
    ],
    turns=[
        Turn("coder"), # None prompt = instruction.md
        Turn("reviewer", "Review the code. Write feedback to "
             '/app/.outbox/coder.json as {"to":"coder","content":"..."}'),
        Turn("coder", "Fix the issues."), # reviewer's feedback auto-injected
    ],
)
config = TrialConfig(task_path=Path("tasks/my-task"), scenes=[scene], environment="daytona")
result = await bf.run(config)
"""
SKILL_GENERATION = """
from benchflow.trial import TrialConfig, Scene, Role, Turn

config = TrialConfig(
    task_path=Path("tasks/my-task"),
    scenes=[
        Scene(name="skill-gen",
              roles=[Role("gen", "gemini", "gemini-3.1-flash-lite-preview")],
              turns=[Turn("gen", "Analyze the task and write a skill to /app/generated-skill.md")]),
        Scene(name="solve",
              roles=[Role("solver", "gemini", "gemini-3.1-flash-lite-preview")],
              turns=[Turn("solver")]),  # None prompt = use instruction.md
    ],
    environment="daytona",
)
result = await bf.run(config)
"""
MULTI_TURN = """
from benchflow.trial import TrialConfig, Scene, Role, Turn

config = TrialConfig(
    task_path=Path("tasks/my-task"),
    scenes=[
        Scene(name="iterative-solve",
              roles=[Role("solver", "gemini", "gemini-3.1-flash-lite-preview")],
              turns=[
                  Turn("solver"),  # instruction.md
                  Turn("solver", "Review your solution. Run tests. Fix issues."),
                  Turn("solver", "Final check: verify every requirement is met."),
              ]),
    ],
    environment="daytona",
)
result = await bf.run(config)
"""
CROSS_MODEL = """
from benchflow.trial import TrialConfig, Scene, Role, Turn

config = TrialConfig(
    task_path=Path("tasks/my-task"),
    scenes=[
        Scene(name="cross-model-review",
              roles=[
                  Role("coder", "gemini", "gemini-3.1-flash-lite-preview"),
                  Role("reviewer", "claude-agent-acp", "claude-sonnet-4-6"),
              ],
              turns=[
                  Turn("coder"),
                  Turn("reviewer", "Review the coder's work..."),
                  Turn("coder", "Address the reviewer's feedback."),
              ]),
    ],
    environment="daytona",
)
result = await bf.run(config)
"""
SNIPPETS = {
    "user simulation": (USER_SIMULATION, ["1", "1", "2", "2"]),
    "review": (REVIEW, ["1", "1", "2"]),
    "skill generation": (SKILL_GENERATION, ["1", "1"]),
    "multi-turn": (MULTI_TURN, ["1", "2", "3"]),
    "cross-model": (CROSS_MODEL, ["1", "1", "2"]),
}


@pytest.mark.needs("local")
@pytest.mark.parametrize("name", SNIPPETS)
def test_scenes_run_as_written(name: str, run_snippet: RunSnippet) -> None:
    snippet, numbers = SNIPPETS[name]
    result = run_snippet(snippet)
    assert result.error is None, result.error
    assert result.rewards == {"reward": 1.0}
    # The agents number the prompts of their own process: a role keeps its session, also when another acts in between.
    said = [event["text"] for event in result.trajectory if event["type"] == "message"]
    assert [str(text).split(":")[0] for text in said] == numbers
    assert len(json.loads((result.rollout_dir / "prompts.json").read_text())) == len(numbers)


def in_python(document: dict[str, list[dict[str, list[dict[str, str]]]]]) -> list[Scene]:
    return [
        Scene(
            name=str(scene["name"]),
            roles=[Role(role["name"], role["agent"], role["model"]) for role in scene["roles"]],
            turns=[Turn(turn["role"], turn.get("prompt")) for turn in scene["turns"]],
        )
        for scene in document["scenes"]
    ]


@pytest.mark.needs("local")
@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.stem)
@pytest.mark.usefixtures("workplace")
async def test_yaml_and_python_are_the_same_steps(file: Path) -> None:
    document = read_yaml(file)
    assert isinstance(document, dict)
    job = job_from_yaml(file)
    python = in_python(document) if "scenes" in document else [Scene.single("gemini")]
    if "scenes" in document:
        assert compile_steps(job.config.scenes, "x") == compile_steps(python, "x")
        one = rollout_config({"task": "tasks/my-task", "scenes": document["scenes"]}, Path("rollout.yaml"))
        assert one.scenes == python
    async with backends_in_use():
        plan = await make_plan(RolloutConfig(task_path=Path("tasks/my-task"), scenes=python, environment="daytona"))
    assert list(plan.acts[0].turns) == compile_steps(python, "Do it.")
