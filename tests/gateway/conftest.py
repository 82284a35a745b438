"""A gateway with a door: what a sandbox's `listen` does is done by a plain server on loopback."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import SecretStr

from benchflow.gateway.account import Account
from benchflow.gateway.ledger import Ledger, read_exchanges
from benchflow.gateway.litellm_bridge.translator import LiteLLMTranslator
from benchflow.gateway.server import Gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from benchflow.agent.spec import Dialect
    from benchflow.gateway.admission import Pass
    from benchflow.gateway.dialects.base import Json
    from benchflow.gateway.translate import Translator

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


class Lent:
    """A translator that a gateway uses and does not close."""

    def __init__(self, translator: LiteLLMTranslator) -> None:
        self.missing = translator.missing
        self.upstream = translator.upstream

    async def close(self) -> None:
        pass


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def translator() -> AsyncIterator[Translator]:
    """One for all tests of a module, which therefore share a loop: it takes long to start."""
    made = LiteLLMTranslator()
    yield Lent(made)
    await made.close()


def self_signed(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    day = dt.timedelta(days=1)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - day).not_valid_after(now + day).add_extension(names, False)
    file = folder / "server.pem"
    plain = serialization.NoEncryption()
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    return context


@asynccontextmanager
async def open_impostor(folder: Path) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server with a certificate of nobody's, and what it was told."""
    heard: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(100))
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0, ssl=self_signed(folder)) as server:
        yield f"https://localhost:{server.sockets[0].getsockname()[1]}", heard


@pytest.fixture
def impostor(tmp_path: Path) -> AbstractAsyncContextManager[tuple[str, list[bytes]]]:
    return open_impostor(tmp_path)
