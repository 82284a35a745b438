"""The users' own snippets for one rollout, run as they are written.

What lies outside this machine is stood in for by its own mechanism: `daytona` is a sandbox backend registered through
an entry point (it is the local one), and `gemini` and the others are agents in the user's own folder of agents.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import shutil
import textwrap
from typing import TYPE_CHECKING

import pytest

from benchflow.testing import agents

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.needs("local")

DOCKERFILE = """\
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY agents.py /opt/agents.py
"""
HEAD = "import asyncio\nfrom pathlib import Path\nimport benchflow as bf\n"

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


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the snippets expect it: their tasks, their agents, their sandbox."""
    for task in ("tasks/my-task", "tasks/X", "path/to/task"):
        folder = tmp_path / task
        (folder / "environment").mkdir(parents=True)
        (folder / "tests").mkdir()
        (folder / "task.toml").write_text("")
        (folder / "instruction.md").write_text("Do it.")
        (folder / "environment" / "Dockerfile").write_text(DOCKERFILE)
        (folder / "tests" / "test.sh").write_text("#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n")
        shutil.copy(agents.SCRIPT, folder / "environment" / "agents.py")
    (tmp_path / "trial.yaml").write_text("task_path: tasks/my-task\nagent: gemini\nenvironment: daytona\n")
    catalog = tmp_path / "config" / "benchflow" / "agents"
    catalog.mkdir(parents=True)
    for name in ("gemini", "claude-agent-acp"):
        launch = '[launch]\ncommand = ["python3", "/opt/agents.py", "echo"]\n'
        (catalog / f"{name}.toml").write_text(f'name = "{name}"\n{launch}')
    package = tmp_path / "site" / "stand_in-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: stand-in\nVersion: 1.0\n")
    points = "[benchflow.sandboxes]\ndaytona = benchflow.sandbox.local.backend:LocalBackend\n"
    (package / "entry_points.txt").write_text(points)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    return tmp_path


@pytest.mark.parametrize("name", SNIPPETS)
@pytest.mark.usefixtures("workplace")
def test_snippet_runs_as_written(name: str) -> None:
    code = HEAD + SNIPPETS[name]
    scope: dict[str, object] = {}
    if "await " not in code:
        exec(compile(code, name, "exec"), scope)
    else:
        body = textwrap.indent(SNIPPETS[name], "    ")
        source = f"{HEAD}async def main():\n    from benchflow.sandbox.registry import backends_in_use\n"
        source += f"    async with backends_in_use():\n{textwrap.indent(body, '    ')}\n        return locals()\n"
        exec(compile(ast.parse(source), name, "exec"), scope)
        scope = asyncio.run(scope["main"]())  # type: ignore[operator]
    result = scope["result"]
    assert result.error is None, result.error  # type: ignore[attr-defined]
    assert result.rewards == {"reward": 1.0}  # type: ignore[attr-defined]
