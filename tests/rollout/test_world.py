"""From a task to the limits of its sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchflow.rollout.world import MEMORY_SHARE, limits
from benchflow.sandbox.base import PIDS_LIMIT
from benchflow.task.load import load_task

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("toml", "memory"), [("memory_mb = 512\n", 512), ("", None)])
def test_every_sandbox_has_limits(tmp_path: Path, toml: str, memory: int | None) -> None:
    (tmp_path / "environment").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "environment" / "Dockerfile").write_text("FROM debian\n")
    (tmp_path / "tests" / "test.sh").write_text("#!/bin/sh\n")
    (tmp_path / "instruction.md").write_text("Do.\n")
    (tmp_path / "task.toml").write_text(f"[environment]\n{toml}")
    found = limits(load_task(tmp_path).config.environment)
    assert found.pids == PIDS_LIMIT
    assert found.memory_mb is not None
    assert found.memory_mb == memory or (memory is None and found.memory_mb > 0)
    assert 0 < MEMORY_SHARE < 1
