"""The users' own snippets for one rollout, run as they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import RunSnippet

pytestmark = pytest.mark.needs("local")

SHORTCUT = """
result = asyncio.run(bf.run("gemini", task_path="tasks/my-task", model="gemini-3.1-flash-lite-preview"))
print(f"Reward: {result.rewards}")
print(f"Tool calls: {result.n_tool_calls}")
"""
SINGLE = """
from benchflow.trial import TrialConfig, Scene, Role, Turn
# Single-agent (simplest)
config = TrialConfig(
    task_path=Path("tasks/my-task"),
    scenes=[Scene.single(agent="gemini", model="gemini-3.1-flash-lite-preview")],
    environment="daytona",
    sandbox_setup_timeout=120,
)
result = await bf.run(config)
"""
BYOS = """
from benchflow.trial import TrialConfig, Scene, Role, Turn
config = TrialConfig(
    task_path=Path("tasks/my-task"),
    scenes=[
        Scene(name="prep", roles=[Role("gen", "gemini", "gemini-3.1-flash-lite-preview")],
              turns=[Turn("gen", "Generate a skill for this task...")]),
        Scene(name="solve", roles=[Role("solver", "gemini", "gemini-3.1-flash-lite-preview")],
              turns=[Turn("solver")]),
    ],
    environment="daytona",
    sandbox_setup_timeout=120,
)
result = await bf.run(config)
"""
PHASES = """
from benchflow.trial import Trial, TrialConfig, Scene
config = TrialConfig(task_path=Path("tasks/my-task"), scenes=[Scene.single(agent="gemini")], environment="daytona")
trial = await Trial.create(config)
# Full lifecycle (most common)
result = await trial.run()
trial = await Trial.create(config)
# Manual composition (for custom flows)
await trial.setup()
await trial.start()
await trial.install_agent()
await trial.connect()
await trial.execute(prompts=["custom prompt"])
await trial.disconnect()
await trial.verify()
await trial.cleanup()
"""
RUNTIME = """
from benchflow.runtime import Agent, Environment, Runtime, RuntimeConfig
config = RuntimeConfig(sandbox_setup_timeout=300)
agent = Agent("gemini", model="gemini-3.1-flash-lite-preview")
env = Environment.from_task("tasks/X", backend="daytona")
runtime = Runtime(env, agent, config=config)
result = await runtime.execute()
"""
CONVENTIONS = """
# 2. Agent + Environment (0.3 style)
agent = bf.Agent("gemini", model="gemini-3.1-flash-lite-preview")
env = bf.Environment.from_task("tasks/X", backend="daytona")
runtime_config = bf.RuntimeConfig(sandbox_setup_timeout=300)
result = await bf.run(agent, env, runtime_config)
# 3. String shortcut (simplest)
result = await bf.run(
    "gemini",
    task_path="tasks/X",
    model="gemini-3.1-flash-lite-preview",
    config=bf.RuntimeConfig(sandbox_setup_timeout=300),
)
"""
YAML = """
from benchflow.trial_yaml import trial_config_from_yaml
config = trial_config_from_yaml("trial.yaml")
result = await bf.run(config)
"""
SDK = """
from benchflow import SDK
sdk = SDK()
result = await sdk.run(
    task_path="path/to/task",
    agent="claude-agent-acp",
    model="claude-haiku-4-5-20251001",
    environment="daytona", # or "docker"
)
print(result.rewards) # {"reward": 1.0}
print(result.n_tool_calls) # 17
# Multi-turn — None = use task's instruction.md
result = await sdk.run(
    task_path="path/to/task",
    agent="claude-agent-acp",
    prompts=[
        None,
        "Review your solution. Check for errors, test it, and fix any issues.",
    ],
    environment="daytona",
)
"""
SNIPPETS = {
    "shortcut": SHORTCUT,
    "single": SINGLE,
    "byos": BYOS,
    "phases": PHASES,
    "runtime": RUNTIME,
    "conventions": CONVENTIONS,
    "yaml": YAML,
    "sdk": SDK,
}


@pytest.mark.parametrize("name", SNIPPETS)
def test_snippet_runs_as_written(name: str, run_snippet: RunSnippet) -> None:
    result = run_snippet(SNIPPETS[name])
    assert result.error is None, result.error
    assert result.rewards == {"reward": 1.0}
