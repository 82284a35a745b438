"""What a hostile agent may try on the host that runs it: fill its disk, and have it write down a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import benchflow as bf
from benchflow.rollout import record
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.scene import Scene
from benchflow.sandbox.registry import backends_in_use
from benchflow.trajectory import writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from .conftest import MakeTask

pytestmark = pytest.mark.needs("local")

GIVEN = {
    "HOST_TOKEN": "t0ken-of-the-host",
    "HOST_JUDGE_KEY": "k3y-of-the-judge",
    "HOST_DB": "postgres://me:pa55-of-the-db@db.example/x",
}
HIDDEN = [b"t0ken-of-the-host", b"k3y-of-the-judge", b"pa55-of-the-db", b"p4t-of-the-user"]

TOML = """
[environment.env]
SERVICE = "${HOST_TOKEN}"
DB = "${HOST_DB}"
[verifier.env]
JUDGE_KEY = "${HOST_JUDGE_KEY}"
"""
TELL_ALL = """#!/bin/sh
env
env > /logs/verifier/all.txt
ln /logs/verifier/all.txt /logs/verifier/again.txt
truncate -s 1T /logs/verifier/endless; env >> /logs/verifier/endless
echo 1 > /logs/verifier/reward.txt
"""


@pytest.fixture(autouse=True)
async def backends() -> AsyncIterator[None]:
    async with backends_in_use():
        yield


async def run(task: Path, habit: str, **settings: object) -> bf.RolloutResult:
    config = RolloutConfig(
        task_path=task,
        scenes=[Scene.single(f"python3 /opt/agents.py {habit}")],
        environment="local",
        jobs_dir=task.parent / "jobs",
        **settings,  # type: ignore[arg-type]
    )
    return await bf.run(config)


async def test_floods_fill_no_disk(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "LOG_LIMIT", 500)
    monkeypatch.setattr(writer, "TRAJECTORY_LIMIT", 50_000)
    result = await run(make_task(files={"instruction.md": "5000"}), "flooding")
    assert result.error is None
    assert result.rewards == {"reward": 0.0}
    assert (result.rollout_dir / "trajectory" / "acp_trajectory.jsonl").stat().st_size < 52_000
    assert [note for note in result.notes if "the trajectory is full" in note]
    result = await run(make_task(files={"instruction.md": "hello"}), "noisy")
    (log,) = (result.rollout_dir / "agent").glob("*.txt")
    assert log.stat().st_size < 4000
    assert log.read_text().rstrip().endswith("is not kept)")


async def test_no_secret_that_a_sandbox_was_given_is_written_down(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)
    say = "$ env; echo $SERVICE $DB $GH_PAT; echo $SERVICE $DB $GH_PAT >&2"
    task = make_task(TOML, {"tests/test.sh": TELL_ALL, "instruction.md": say})
    result = await run(task, "shell", agent_env={"GH_PAT": "p4t-of-the-user"})
    assert result.rewards == {"reward": 1.0}, result.error
    assert "***" in (result.rollout_dir / "verifier" / "test-stdout.txt").read_text()
    assert "***" in (result.rollout_dir / "trajectory" / "acp_trajectory.jsonl").read_text()
    for path in (path for path in result.rollout_dir.rglob("*") if path.is_file()):
        assert path.stat().st_size < 10_000_000, path
        content = path.read_bytes()
        assert not [secret for secret in HIDDEN if secret in content], path
