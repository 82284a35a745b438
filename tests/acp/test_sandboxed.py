"""A session with an agent inside a real sandbox: what it asks for happens there, as its own user, and nowhere else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from benchflow.acp import SessionOptions, connect
from benchflow.errors import AgentGone, SandboxGone
from benchflow.sandbox.base import HostRoot, Network, SandboxSpec
from benchflow.sandbox.registry import close_backends, get_backend
from benchflow.testing.agents import SCRIPT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from benchflow.acp import Session
    from benchflow.sandbox.base import Sandbox
    from benchflow.trajectory import Event

pytestmark = pytest.mark.needs("local")

USER = "nobody"
WORK = "/tmp/work"
AGENT = "/tmp/agents.py"


@pytest.fixture
async def box() -> AsyncIterator[Sandbox]:
    try:
        async with get_backend("local").create(SandboxSpec(image=HostRoot(), network=Network("no-network"))) as sandbox:
            await sandbox.put(SCRIPT, AGENT)
            await sandbox.put({"mine.txt": b"mine\n"}, WORK, owner=USER)
            await sandbox.put({"secret.txt": b"secret\n"}, "/tmp/kept")
            await sandbox.exec(f"chown {USER} {WORK}; chmod 700 /tmp/kept")
            yield sandbox
    finally:
        await close_backends()


async def open_agent(box: Sandbox, habit: str, events: list[Event]) -> Session:
    stream = await box.open(["python3", AGENT, habit], user=USER, cwd=WORK)
    return await connect(stream, box, SessionOptions(cwd=WORK, user=USER), on_event=events.append)


async def answers(box: Sandbox, *calls: tuple[str, dict[str, object]]) -> list[dict[str, object]]:
    events: list[Event] = []
    async with await open_agent(box, "requesting", events) as agent:
        await agent.prompt(json.dumps(calls))
    said: list[dict[str, object]] = json.loads(str(next(one["text"] for one in events if one["type"] == "message")))
    return said


async def test_files_are_those_of_the_sandbox_and_of_the_agents_user(box: Sandbox, tmp_path: Path) -> None:
    outside = tmp_path / "host.txt"
    outside.write_text("the host's")
    read, secret, wrote, refused, *_ = await answers(
        box,
        ("fs/read_text_file", {"path": "mine.txt"}),
        ("fs/read_text_file", {"path": "/tmp/kept/secret.txt"}),
        ("fs/write_text_file", {"path": f"{WORK}/deep/new.txt", "content": "new"}),
        ("fs/write_text_file", {"path": "/tmp/kept/x", "content": "x"}),
        ("fs/write_text_file", {"path": str(outside), "content": "x"}),
    )
    assert read == {"content": "mine\n"}
    assert "code" in secret
    assert wrote == {}
    assert "code" in refused
    assert outside.read_text() == "the host's"
    assert await box.read(f"{WORK}/deep/new.txt") == b"new"
    owner = await box.exec(["stat", "-c", "%U", f"{WORK}/deep/new.txt"])
    assert owner.text.strip() == USER


async def test_terminals_run_inside_as_the_agents_user(box: Sandbox) -> None:
    _, waited, output, *_ = await answers(
        box,
        ("terminal/create", {"command": "id -un; pwd; cat /tmp/kept/secret.txt; exit 4"}),
        ("terminal/wait_for_exit", {"terminalId": "$terminal"}),
        ("terminal/output", {"terminalId": "$terminal"}),
        ("terminal/create", {"command": "sleep 12345"}),
    )
    assert waited == {"exitCode": 4}
    assert str(output["output"]).startswith(f"{USER}\n{WORK}\ncat:")
    left = await box.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "sleep 12345" not in left.text


async def test_a_sandbox_that_vanishes_is_not_blamed_on_the_agent(box: Sandbox) -> None:
    events: list[Event] = []
    agent = await open_agent(box, "hanging", events)
    try:
        await box.stop()
        with pytest.raises((SandboxGone, AgentGone)) as caught:
            await agent.prompt("hello")
        assert isinstance(caught.value, SandboxGone)
    finally:
        await agent.close()
