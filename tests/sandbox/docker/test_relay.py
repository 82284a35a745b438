"""The program that listens inside a container, in both languages, run here without one."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import socket
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Self

import pytest

from benchflow.sandbox.docker import relay

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import AsyncIterator
    from types import TracebackType

    from benchflow.sandbox.base import ConnectionHandler

COMMANDS = {"python": ["python3", "-I", "-c", relay.PYTHON], "perl": ["perl", "-e", relay.PERL]}


@pytest.fixture(params=list(COMMANDS))
def command(request: pytest.FixtureRequest) -> list[str]:
    argv = COMMANDS[str(request.param)]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"no {argv[0]}")
    return argv


class Child:
    """A process of this machine as a stream."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.process, self.stdout, self.stderr = process, process.stdout, process.stderr

    async def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(data)
            await self.process.stdin.drain()
        except ConnectionError:
            raise BrokenPipeError from None

    async def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def wait(self) -> int:
        return await self.process.wait()

    async def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()


async def start(command: list[str], port: int = 0) -> Child:
    pipe = asyncio.subprocess.PIPE
    return Child(await asyncio.create_subprocess_exec(*command, str(port), stdin=pipe, stdout=pipe, stderr=pipe))


@asynccontextmanager
async def listening(command: list[str], handler: ConnectionHandler) -> AsyncIterator[relay.RelayListener]:
    listener = relay.RelayListener(await start(command), handler, lambda _: None)
    assert await listener.serve() == ""
    yield listener
    await listener.close()
    await listener.close()


async def echo(reader: StreamReader, writer: StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def ask(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_bytes_go_both_ways_and_ends_arrive(command: list[str]) -> None:
    async with listening(command, echo) as listener:
        for size in (0, 1, 65536, 5_000_000):
            data = random.Random(size).randbytes(size)
            assert await ask(listener.port, data) == data


async def test_many_at_once(command: list[str]) -> None:
    async with listening(command, echo) as listener:
        answers = await asyncio.gather(*(ask(listener.port, b"%d" % number * 1000) for number in range(80)))
    assert answers == [b"%d" % number * 1000 for number in range(80)]


async def test_a_slow_one_holds_back_only_itself(command: list[str]) -> None:
    first = asyncio.Event()

    async def handler(reader: StreamReader, writer: StreamWriter) -> None:
        if not first.is_set():
            first.set()
            await asyncio.sleep(1000)
        await echo(reader, writer)

    async with listening(command, handler) as listener:
        _, stuck = await asyncio.open_connection("127.0.0.1", listener.port)
        stuck.write(bytes(20_000_000))
        await first.wait()
        assert await ask(listener.port, b"x" * 3_000_000) == b"x" * 3_000_000
        stuck.transport.abort()


async def test_a_client_that_does_not_read_holds_back_only_itself(command: list[str]) -> None:
    async def pour(reader: StreamReader, writer: StreamWriter) -> None:
        if await reader.readline() == b"pour\n":
            writer.write(bytes(20_000_000))
            await writer.drain()
        else:
            writer.write(b"hello")

    async with listening(command, pour) as listener:
        _, deaf = await asyncio.open_connection("127.0.0.1", listener.port)
        deaf.write(b"pour\n")
        await deaf.drain()
        await asyncio.sleep(0.2)
        assert await ask(listener.port, b"greet\n") == b"hello"
        deaf.transport.abort()


async def test_a_handler_that_gives_up_ends_the_connection(command: list[str]) -> None:
    async def fail(reader: StreamReader, writer: StreamWriter) -> None:
        raise ConnectionResetError

    async with listening(command, fail) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_client_that_vanishes_is_noticed(command: list[str]) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def handler(reader: StreamReader, writer: StreamWriter) -> None:
        begun.set()
        with suppress(ConnectionError):
            while await reader.read(65536):
                pass
        ended.set()

    async with listening(command, handler) as listener:
        with socket.create_connection(("127.0.0.1", listener.port)) as client:
            await begun.wait()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        async with asyncio.timeout(30):
            await ended.wait()


async def test_a_program_that_dies_ends_its_connections(command: list[str]) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def handler(reader: StreamReader, writer: StreamWriter) -> None:
        begun.set()
        await reader.read()
        ended.set()

    child = await start(command)
    listener = relay.RelayListener(child, handler, lambda _: None)
    assert await listener.serve() == ""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    await begun.wait()
    child.process.kill()
    async with asyncio.timeout(30):
        await ended.wait()
    with suppress(ConnectionError):
        await reader.read()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    await listener.close()


async def test_a_port_that_is_taken_is_said(command: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = relay.RelayListener(await start(command, taken.getsockname()[1]), echo, lambda _: None)
        assert os.strerror(98) in await listener.serve()


def test_the_image_decides_which_program_runs() -> None:
    argv = relay.program(80)
    assert argv[:3] == ["sh", "-c", relay.CHOICE]
    assert argv[-1] == "80"
