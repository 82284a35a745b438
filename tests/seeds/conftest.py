"""A workplace as the users' own snippets expect it, and the way they are run as they are written.

What lies outside this machine is stood in for by its own mechanism: `daytona` is a sandbox backend registered through
an entry point (it is the local one), and `gemini` and the others are agents in the user's own folder of agents.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import shutil
import textwrap
from typing import TYPE_CHECKING, Protocol

import pytest

from benchflow.testing import agents

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.rollout.result import RolloutResult

DOCKERFILE = """\
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY agents.py /opt/agents.py
"""
HEAD = "import asyncio\nfrom pathlib import Path\nimport benchflow as bf\n"


class RunSnippet(Protocol):
    def __call__(self, snippet: str) -> RolloutResult: ...


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


@pytest.fixture
def run_snippet(workplace: Path) -> RunSnippet:
    """Runs a snippet in the workplace and gives its `result`."""
    del workplace

    def run(snippet: str) -> RolloutResult:
        scope: dict[str, object] = {}
        if "await " not in snippet:
            exec(compile(HEAD + snippet, "snippet", "exec"), scope)
        else:
            body = textwrap.indent(snippet, "    ")
            source = f"{HEAD}async def main():\n    from benchflow.sandbox.registry import backends_in_use\n"
            source += f"    async with backends_in_use():\n{textwrap.indent(body, '    ')}\n        return locals()\n"
            exec(compile(ast.parse(source), "snippet", "exec"), scope)
            scope = asyncio.run(scope["main"]())  # type: ignore[operator]
        return scope["result"]  # type: ignore[return-value]

    return run
