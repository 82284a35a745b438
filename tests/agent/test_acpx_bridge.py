"""An agent run through acpx, for real: the bridge of ours, acpx from npm, and a small agent at the end of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from benchflow.agent.bundle import MOUNT_ROOT, bundle_root, ensure_bundle
from benchflow.agent.catalog import get_agent
from benchflow.testing.agents import command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PATIENCE = 120.0
"""Seconds an answer may take on a busy machine."""


class Client:
    """As little of an ACP client as will do: one request at a time, updates kept."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.updates: list[dict[str, Any]] = []
        self._asked = 0

    async def call(self, method: str, **params: object) -> dict[str, Any]:
        self._asked += 1
        request = {"jsonrpc": "2.0", "id": self._asked, "method": method, "params": params}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        while True:
            line = await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)
            message: dict[str, Any] = json.loads(line)
            if message.get("method") == "session/update":
                self.updates.append(message["params"])
            elif message.get("id") == self._asked:
                return message

    def text(self) -> str:
        return "".join(
            update["update"]["content"]["text"]
            for update in self.updates
            if update["update"]["sessionUpdate"] == "agent_message_chunk"
        )


@asynccontextmanager
async def bridged(words: list[str], folder: Path) -> AsyncIterator[Client]:
    spec = get_agent("acpx/goose").through
    assert spec is not None
    bundle = await ensure_bundle(spec)
    argv = [word.replace(MOUNT_ROOT, str(bundle_root())) for word in bundle.argv]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(*argv, *words),
        stdin=pipe,
        stdout=pipe,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        start_new_session=True,
    )
    try:
        yield Client(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), PATIENCE)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def test_sessions_and_turns_pass_through(tmp_path: Path) -> None:
    async with bridged(command("echo"), tmp_path) as client:
        hello = await client.call("initialize", protocolVersion=1)
        assert hello["result"]["protocolVersion"] == 1
        assert hello["result"]["agentInfo"]["name"] == "acpx"
        made = await client.call("session/new", cwd=str(tmp_path), mcpServers=[])
        session = made["result"]["sessionId"]
        for words in ("first words", "second words"):
            client.updates.clear()
            prompt = [{"type": "text", "text": words}]
            done = await client.call("session/prompt", sessionId=session, prompt=prompt)
            assert done["result"]["stopReason"] == "end_turn"
            assert words in client.text()
            assert {update["sessionId"] for update in client.updates} == {session}


@pytest.mark.parametrize("words", [["/no/such/agent"], ["sh", "-c", "exit 7"]])
async def test_an_agent_that_does_not_start_is_an_error(words: list[str], tmp_path: Path) -> None:
    async with bridged(words, tmp_path) as client:
        made = await client.call("session/new", cwd=str(tmp_path), mcpServers=[])
        assert made["error"]["message"]


async def test_what_the_bridge_does_not_know_is_refused(tmp_path: Path) -> None:
    async with bridged(command("echo"), tmp_path) as client:
        assert (await client.call("session/load", sessionId="x"))["error"]["code"] == -32601
        prompt = [{"type": "text", "text": "hi"}]
        assert (await client.call("session/prompt", sessionId="x", prompt=prompt))["error"]["code"] == -32602
