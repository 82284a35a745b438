"""From inside a real sandbox without any network, to the model and to nothing else."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from benchflow.gateway.tunnel import carry, is_loopback
from benchflow.sandbox.base import HostRoot, Network, SandboxSpec
from benchflow.testing.model_server import ModelServer, Say

if TYPE_CHECKING:
    from tests.gateway.conftest import Bench

ASK = """
import json, os, urllib.request
url, token = os.environ["URL"], os.environ["TOKEN"]
body = {"model": "claude-sonnet-4-6", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
request = urllib.request.Request(url + "/v1/messages", json.dumps(body).encode(), {"x-api-key": token})
print(urllib.request.urlopen(request).read().decode())
"""


@pytest.mark.needs("local")
async def test_an_agent_without_network_reaches_its_model_and_never_sees_the_key(bench: Bench, key: str) -> None:
    from benchflow.sandbox.local.backend import LocalBackend

    backend = LocalBackend()
    spec = SandboxSpec(HostRoot(), name="gateway", network=Network("no-network"))
    async with ModelServer([Say("hello from outside")]) as model, backend.create(spec) as sandbox:
        gateway = await bench.gateway()
        pass_ = gateway.admit(bench.account(model.url, "anthropic"), bench.ledger)
        listener = await sandbox.listen(pass_.serve)
        env = {"URL": pass_.base_url("anthropic", listener.port), "TOKEN": pass_.token}
        ended = await sandbox.exec(["python3", "-c", ASK], env=env, cwd="/", timeout=60)
        assert ended.ok, ended
        texts = [json.loads(line[6:]) for line in ended.text.splitlines() if line.startswith("data: ")]
        said = "".join(event["delta"].get("text", "") for event in texts if event["type"] == "content_block_delta")
        assert said == "hello from outside"
        assert key not in ended.text
        direct = await sandbox.exec(
            ["python3", "-c", ASK], env={**env, "URL": model.url, "TOKEN": key}, cwd="/", timeout=60
        )
        assert not direct.ok
        await pass_.close()
        dead = await sandbox.exec(["python3", "-c", ASK], env=env, cwd="/", timeout=60)
        assert not dead.ok
        await listener.close()
    await backend.close()
    assert [one["ended"] for one in bench.exchanges()] == ["complete"]


def test_which_urls_name_this_machine() -> None:
    assert all(is_loopback(url) for url in ("http://127.0.0.1:1/v1", "http://localhost", "http://[::1]:2"))
    assert not any(is_loopback(url) for url in ("https://api.anthropic.com", "http://127.0.0.1.evil.example", ""))


async def test_bytes_are_carried_both_ways_and_half_a_farewell_is_passed_on() -> None:
    """A client may say that it has said everything and still hear the answer."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read()
        writer.write(data[::-1])
        writer.close()

    inner = await asyncio.start_server(echo, "127.0.0.1", 0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await carry((reader, writer), await asyncio.open_connection(*inner.sockets[0].getsockname()))

    outer = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with inner, outer:
        reader, writer = await asyncio.open_connection(*outer.sockets[0].getsockname())
        sent = bytes(range(256)) * 10_000
        writer.write(sent)
        writer.write_eof()
        async with asyncio.timeout(20):
            assert await reader.read() == sent[::-1]
        writer.close()
        await writer.wait_closed()
