"""Frames come apart the same whatever the boundaries they arrive with; a refused start carries the engine's words."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.sandbox.docker import wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

FRAMES = st.lists(st.tuples(st.sampled_from([wire.STDOUT, wire.STDERR]), st.binary(max_size=300)), max_size=20)


def frame(kind: int, data: bytes) -> bytes:
    return bytes([kind, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


@settings(deadline=None)
@given(FRAMES, st.lists(st.integers(1, 50), min_size=1))
def test_frames_come_apart_whatever_the_boundaries(frames: list[tuple[int, bytes]], sizes: list[int]) -> None:
    stream = b"".join(frame(kind, data) for kind, data in frames)
    demux, seen, start, turn = wire.Demux(), {wire.STDOUT: b"", wire.STDERR: b""}, 0, 0
    while start < len(stream):
        size = sizes[turn % len(sizes)]
        for kind, piece in demux.feed(stream[start : start + size]):
            seen[kind] += piece
        start, turn = start + size, turn + 1
    for kind, whole in seen.items():
        assert whole == b"".join(data for other, data in frames if other == kind)


async def test_a_full_reader_holds_the_feeder_back() -> None:
    output = wire.Output()
    feeding = asyncio.create_task(output.feed(bytes(3 * wire.BUFFER)))
    await asyncio.sleep(0)
    assert not feeding.done()
    assert await output.reader.readexactly(3 * wire.BUFFER) == bytes(3 * wire.BUFFER)
    await feeding


@asynccontextmanager
async def served(path: Path, answer: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """A server that reads a request and gives one answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await answer(writer)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_unix_server(serve, path)
    async with server:
        yield f"unix://{path}"


async def test_the_first_frames_may_come_with_the_head(tmp_path: Path) -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 UPGRADED\r\n\r\n" + frame(1, b"early"))

    async with served(tmp_path / "sock", answer) as url:
        connection = await wire.hijack(url, "/exec/x/start", {})
        data = b""
        while more := await connection.receive():
            data += more
        connection.close()
    assert list(wire.Demux().feed(data)) == [(1, b"early")]


@pytest.mark.parametrize(
    ("body", "message"),
    [(b'{"message": "no such user"}', "no such user"), (b"plain words", "plain words"), (b"[1]", "[1]")],
)
async def test_a_refusal_carries_the_engines_words(tmp_path: Path, body: bytes, message: str) -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 Oh\r\ncontent-length: %d\r\n\r\n" % len(body))
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(body)

    async with served(tmp_path / "sock", answer) as url:
        with pytest.raises(wire.Refused) as caught:
            await wire.hijack(url, "/exec/x/start", {})
    assert (caught.value.status, caught.value.message) == (500, message)


async def test_an_engine_that_hangs_up(tmp_path: Path) -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101")

    async with served(tmp_path / "sock", answer) as url:
        with pytest.raises(ConnectionError):
            await wire.hijack(url, "/exec/x/start", {})
    with pytest.raises(OSError, match=os.strerror(2)):
        await wire.hijack(f"unix://{tmp_path}/missing", "/", {})


async def test_what_was_sent_before_the_peer_closed_is_received(tmp_path: Path) -> None:
    """A peer that closes with our input unread resets the connection; its output must not be lost by that."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 UPGRADED\r\n\r\n" + frame(1, b"x" * 100_000))
        await writer.drain()
        await asyncio.sleep(0.05)

    async with served(tmp_path / "sock", answer) as url:
        connection = await wire.hijack(url, "/exec/x/start", {})
        with pytest.raises(BrokenPipeError):
            await connection.send(memoryview(bytes(50_000_000)))
        data = b""
        while more := await connection.receive():
            data += more
        connection.close()
    assert len(data) == 100_008
