"""A gateway with a door: what a sandbox's `listen` does is done by a plain server on loopback."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import web
from pydantic import SecretStr

from benchflow.gateway.account import Account
from benchflow.gateway.ledger import Ledger, read_exchanges
from benchflow.gateway.server import Gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from benchflow.agent.spec import Dialect
    from benchflow.gateway.admission import Pass
    from benchflow.gateway.dialects.base import Json

KEY = "sk-planted-real-key-000"

type Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Bench:
    """Everything a test needs around one gateway."""

    def __init__(self, stack: AsyncExitStack, path: Path, http: aiohttp.ClientSession) -> None:
        self.path = path
        self.http = http
        self._stack = stack
        self._ledger: Ledger | None = None

    @property
    def ledger(self) -> Ledger:
        if self._ledger is None:
            self._ledger = Ledger(self.path)
            self._stack.callback(self._ledger.close)
        return self._ledger

    def exchanges(self) -> list[Json]:
        return list(read_exchanges(self.path))

    def account(self, url: str, *dialects: Dialect, provider: str = "", model: str = "", **more: object) -> Account:
        names: dict[Dialect, str] = {"anthropic": "anthropic", "gemini": "gemini"}
        first = dialects[0]
        base = f"{url}/v1" if first.startswith("openai") else url
        named = provider or names.get(first, "openai")
        return Account(named, base, SecretStr(KEY), dialects, model, **more)  # type: ignore[arg-type]

    async def open(self, pass_: Pass) -> str:
        """Let a pass be reached; returns the root URL."""
        server = await asyncio.start_server(pass_.serve, "127.0.0.1", 0)
        self._stack.callback(server.close)
        self._stack.push_async_callback(pass_.close)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def provider(self, handler: Handler, host: str = "127.0.0.1") -> str:
        """A provider that does what `handler` says; returns its root URL."""
        runner = web.ServerRunner(web.Server(handler, handler_cancellation=True), shutdown_timeout=0.1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, host, 0).start()
        return f"http://{host}:{runner.addresses[0][1]}"

    async def gateway(self, gateway: Gateway | None = None) -> Gateway:
        return await self._stack.enter_async_context(gateway or Gateway())


@asynccontextmanager
async def open_bench(folder: Path) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession(auto_decompress=False))
        yield Bench(stack, folder / "llm_trajectory.jsonl", http)


@pytest.fixture
def make_bench(tmp_path: Path) -> Callable[[], AbstractAsyncContextManager[Bench]]:
    return lambda: open_bench(tmp_path)


@pytest.fixture
async def bench(make_bench: Callable[[], AbstractAsyncContextManager[Bench]]) -> AsyncIterator[Bench]:
    async with make_bench() as made:
        yield made


@pytest.fixture
def key() -> str:
    return KEY
