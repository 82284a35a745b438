"""A small task of our own whose image holds the tiny test agents, to see what a rollout makes of each habit."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Protocol

import pytest

from benchflow.testing import agents

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# The same line as in examples/tasks/start-a-server, so that its layer is shared.
DOCKERFILE = """\
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY agents.py /opt/agents.py
"""
TEST = "#!/bin/sh\nif [ -f /app/done ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"


class MakeTask(Protocol):
    def __call__(self, toml: str = "", files: Mapping[str, str] | None = None) -> Path: ...


@pytest.fixture
def make_task(tmp_path: Path) -> MakeTask:
    """Writes a task into the test's folder: its task.toml, and files beside or instead of the usual ones."""

    def make(toml: str = "", files: Mapping[str, str] | None = None) -> Path:
        folder = tmp_path / "task"
        contents = {
            "task.toml": toml,
            "instruction.md": "Create /app/done.\n",
            "environment/Dockerfile": DOCKERFILE,
            "tests/test.sh": TEST,
            "solution/solve.sh": "#!/bin/sh\ntouch /app/done\n",
            **(files or {}),
        }
        for name, text in contents.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        shutil.copy(agents.SCRIPT, folder / "environment" / "agents.py")
        return folder

    return make
