"""The wire on its own: which requests of an agent are open, however its bytes arrive."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from typing import TYPE_CHECKING, Any, cast

from benchflow.acp import transport
from benchflow.acp.framing import LineSplitter
from benchflow.acp.transport import BUSY, StreamTransport

if TYPE_CHECKING:
    import pytest

    from benchflow.sandbox.base import Stream


class Pipe:
    """The two ends of a process that a transport needs: what the agent says is put in, what it is told is kept."""

    def __init__(self) -> None:
        self.stdout = asyncio.StreamReader()
        self.told: list[dict[str, Any]] = []

    def says(self, **message: object) -> None:
        self.stdout.feed_data(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def write(self, data: bytes) -> None:
        self.told.append(json.loads(data))


async def wire() -> tuple[Pipe, StreamTransport]:
    pipe = Pipe()
    return pipe, StreamTransport(cast("Stream", pipe), lambda *_: None, lambda _: None)


async def test_a_request_is_open_until_it_is_answered_whatever_else_arrives() -> None:
    pipe, link = await wire()
    for number in (1, 2):
        pipe.says(id=number, method="terminal/wait_for_exit")
        assert (await link.receive() or {})["id"] == number
    pipe.says(method="session/update", params={})
    pipe.says(id=3, method="fs/read_text_file")
    assert (await link.receive() or {})["id"] == 3
    for number, left in ((2, 2), (3, 1), (1, 0)):
        await link.send({"jsonrpc": "2.0", "id": number, "result": {}})
        assert link.serving == left


async def test_the_limit_holds_for_requests_that_arrive_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "REQUESTS_LIMIT", 2)
    pipe, link = await wire()
    for number in (1, 2):
        pipe.says(id=number, method="terminal/wait_for_exit")
        assert await link.receive() is not None
    pipe.says(id=3, method="terminal/wait_for_exit")
    pipe.stdout.feed_eof()
    assert await link.receive() is None
    assert [(one["id"], one["error"]["code"]) for one in pipe.told] == [(3, BUSY)]
    assert link.serving == 2


async def test_an_answer_begins_the_agents_silence_anew() -> None:
    """An agent that waited for us for long has not been silent since it asked."""
    pipe, link = await wire()
    pipe.says(id=1, method="terminal/wait_for_exit")
    await link.receive()
    asked = link.last_activity
    await asyncio.sleep(0.01)
    await link.send({"jsonrpc": "2.0", "id": 1, "result": {}})
    assert link.last_activity > asked


async def test_requests_that_need_much_memory_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when they all have the same id, and without keeping small ones from being refused or served."""
    monkeypatch.setattr(transport, "HEAVY_LIMIT", 2)
    monkeypatch.setattr(transport, "HEAVY_SIZE", 1000)
    pipe, link = await wire()
    pipe.says(id=1, method="fs/read_text_file")
    pipe.says(id=1, method="terminal/create", params={"command": "x" * 1000})
    pipe.says(id=2, method="terminal/wait_for_exit")
    pipe.says(id=1, method="fs/write_text_file")
    assert [(await link.receive() or {})["id"] for _ in range(3)] == [1, 1, 2]
    third = asyncio.create_task(link.receive())
    await link.send({"jsonrpc": "2.0", "id": 2, "result": {}})
    done, _ = await asyncio.wait({third}, timeout=0.05)
    assert not done
    await link.send({"jsonrpc": "2.0", "id": 1, "result": {}})
    assert (await third or {})["method"] == "fs/write_text_file"
    assert link.serving == 2


async def test_a_line_in_the_smallest_pieces_takes_no_more_room_than_its_bytes() -> None:
    splitter = LineSplitter(limit=100_000)
    tracemalloc.start()
    try:
        for _ in range(200_000):
            splitter.feed(b"x")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 300_000
    assert splitter.end() == b"x" * 100_000
