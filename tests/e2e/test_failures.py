"""Whatever goes wrong ends as a result, at the right boundary, with the trajectory kept and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import benchflow as bf
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.lifecycle import Rollout
from benchflow.rollout.scene import Scene
from benchflow.sandbox.registry import backends_in_use, get_backend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from benchflow.trajectory.events import Event

    from .conftest import MakeTask

pytestmark = pytest.mark.needs("local")


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    async with backends_in_use():
        yield
        assert not [info for info in await get_backend("local").list() if info.owner_pid == os.getpid()]


def config(task: Path, agent: str, **settings: object) -> RolloutConfig:
    scene = Scene.single(agent)
    return RolloutConfig(task_path=task, scenes=[scene], environment="local", jobs_dir=task.parent / "jobs", **settings)  # type: ignore[arg-type]


def habit(name: str) -> str:
    return f"python3 /opt/agents.py {name}"


def kept(result: bf.RolloutResult) -> list[object]:
    assert (result.rollout_dir / "result.json").exists()
    return [event["type"] for event in result.trajectory]


async def test_an_agent_that_dies_is_scored_as_it_stands(make_task: MakeTask) -> None:
    result = await bf.run(config(make_task(), habit("dying")))
    assert result.error is not None
    assert (result.error.kind, result.error.boundary, result.error.phase) == ("AgentGone", "agent", "agent_execution")
    assert result.rewards == {"reward": 0.0}
    assert "prompt" in kept(result)


async def test_an_agent_that_never_ends_is_stopped_and_scored(make_task: MakeTask) -> None:
    result = await bf.run(config(make_task("[agent]\ntimeout_sec = 1"), habit("hanging polite")))
    assert result.error is not None
    assert (result.error.kind, result.error.boundary) == ("AgentTimeout", "agent")
    assert "within 1 s" in result.error.message or "within 0." in result.error.message
    assert result.rewards == {"reward": 0.0}
    assert "message" in kept(result)


async def test_an_agent_that_goes_silent_is_noticed(make_task: MakeTask) -> None:
    result = await bf.run(config(make_task(), habit("hanging polite"), agent_idle_timeout=0.5))
    assert result.error is not None
    assert result.error.kind == "AgentTimeout"
    assert "sent nothing" in result.error.message


async def test_an_agent_that_refuses_says_why(make_task: MakeTask) -> None:
    result = await bf.run(config(make_task(), habit("refusing new")))
    assert result.error is not None
    assert (result.error.kind, result.error.phase) == ("ACPError", "agent_setup")
    assert result.rewards == {"reward": 0.0}


async def test_a_command_that_is_not_there(make_task: MakeTask) -> None:
    result = await bf.run(config(make_task(), "no-such-agent --acp"))
    assert result.error is not None
    assert result.error.boundary == "agent"
    assert "no-such-agent" in result.error.message
    assert not result.error.retryable


async def test_a_verifier_that_never_ends(make_task: MakeTask) -> None:
    task = make_task("[verifier]\ntimeout_sec = 3", {"tests/test.sh": "#!/bin/sh\necho begun\nsleep 1000\n"})
    result = await bf.run(config(task, "oracle"))
    assert result.error is not None
    assert (result.error.kind, result.error.boundary, result.error.phase) == ("VerifierTimeout", "verifier", "verifier")
    assert result.rewards is None
    assert (result.rollout_dir / "verifier" / "test-stdout.txt").read_text() == "begun\n"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exit 0", "wrote neither"),
        ("echo nan > /logs/verifier/reward.txt", "not a finite"),
        ("mkfifo /logs/verifier/reward.txt", "cannot be read"),
        ("ln -s /etc/hostname /logs/verifier/reward.txt", "cannot be read"),
        ("head -c 1000000 /dev/zero > /logs/verifier/reward.txt", "cannot be read"),
    ],
)
async def test_failing_to_score_is_an_error_and_not_a_zero(make_task: MakeTask, script: str, says: str) -> None:
    result = await bf.run(config(make_task(files={"tests/test.sh": f"#!/bin/sh\n{script}\n"}), "oracle"))
    assert result.error is not None
    assert result.error.boundary == "verifier"
    assert says in result.error.message
    assert result.rewards is None


async def test_a_full_disk_is_the_agents_own_problem(make_task: MakeTask) -> None:
    solve = "#!/bin/sh\nhead -c 200000000 /dev/zero > /app/big; echo filled\n"
    result = await bf.run(config(make_task("[environment]\nstorage_mb = 64", {"solution/solve.sh": solve}), "oracle"))
    assert result.error is None or result.error.boundary == "verifier"
    assert not result.passed
    assert "tool_call_update" in kept(result)


class Watcher:
    """Says when the agent has spoken."""

    def __init__(self) -> None:
        self.spoke = asyncio.Event()

    def phase(self, name: str) -> None:
        pass

    def event(self, event: Event) -> None:
        if event["type"] == "message":
            self.spoke.set()


async def test_a_sandbox_that_vanishes_mid_turn(make_task: MakeTask) -> None:
    watcher = Watcher()
    rollout = Rollout(config(make_task(), habit("hanging")), observer=watcher)
    running = asyncio.create_task(rollout.run())
    await watcher.spoke.wait()
    await rollout.sandbox.stop()
    result = await running
    assert result.error is not None
    assert (result.error.kind, result.error.boundary) == ("SandboxGone", "sandbox")
    assert "prompt" in kept(result)


async def test_cancelling_still_writes_a_result(make_task: MakeTask) -> None:
    watcher = Watcher()
    rollout = Rollout(config(make_task(), habit("hanging")), observer=watcher)
    running = asyncio.create_task(rollout.run())
    await watcher.spoke.wait()
    # Whoever asks again does not make it end without its result.
    for _ in range(3):
        running.cancel()
        await asyncio.wait({running}, timeout=0.01)
    with suppress(asyncio.CancelledError):
        await running
    written = json.loads((rollout.record.folder.path / "result.json").read_text())
    assert written["error"]["kind"] == "Cancelled"
    assert written["rewards"] is None


async def test_a_sandbox_that_is_never_healthy(make_task: MakeTask) -> None:
    toml = '[environment.healthcheck]\ncommand = "echo not yet >&2; false"\nretries = 2\ninterval_sec = 0.01'
    result = await bf.run(config(make_task(toml), "nop"))
    assert result.error is not None
    assert (result.error.boundary, result.error.phase) == ("sandbox", "environment_setup")
    assert "not yet" in result.error.message


async def test_an_image_that_does_not_build(make_task: MakeTask) -> None:
    dockerfile = "FROM debian:bookworm-slim\nRUN echo on the way && exit 7\n"
    result = await bf.run(config(make_task(files={"environment/Dockerfile": dockerfile}), "nop"))
    assert result.error is not None
    assert (result.error.kind, result.error.boundary) == ("SandboxBuildError", "sandbox")
    assert "on the way" in result.error.message
