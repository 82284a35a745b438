"""Passes: who gets in, with what, until when; and clients that mean harm."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from benchflow.testing.model_server import ModelServer, Say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.gateway.conftest import Bench

    from benchflow.gateway.admission import Pass
    from benchflow.gateway.server import Gateway

ASK: dict[str, Any] = {"model": "claude-sonnet-4-6", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer([Say("hello")]) as server:
        yield server


@pytest.fixture
async def gateway(bench: Bench) -> Gateway:
    return await bench.gateway()


@pytest.fixture
async def pass_(bench: Bench, gateway: Gateway, model: ModelServer) -> Pass:
    return gateway.admit(bench.account(model.url, "anthropic", models=("claude-*",)), bench.ledger)


def auth(pass_: Pass) -> dict[str, str]:
    return {"x-api-key": pass_.token, "anthropic-version": "2023-06-01"}


async def talk(root: str, data: bytes) -> bytes:
    """Everything a server says to some raw bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(root.rsplit(":", 1)[1]))
    writer.write(data)
    try:
        async with asyncio.timeout(10):
            answer = await reader.read(100_000)
            return answer + (await reader.read() if b"close" in answer.lower() else b"")
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_a_token_is_good_for_its_own_pass_only(bench: Bench, gateway: Gateway, model: ModelServer) -> None:
    account = bench.account(model.url, "anthropic")
    mine, other = gateway.admit(account, bench.ledger), gateway.admit(account, bench.ledger)
    url = f"{await bench.open(mine)}/v1/messages"
    for token in ("", "wrong", other.token, mine.token[:-1], mine.token + "x", "Ünïcode"):
        async with bench.http.post(url, json=ASK, headers={"x-api-key": token}) as reply:
            assert reply.status == 401
            assert (await reply.json())["error"]["type"] == "authentication_error"
    assert not model.requests
    assert bench.exchanges() == []
    async with bench.http.post(url, json=ASK, headers=auth(mine)) as reply:
        assert reply.status == 200


async def test_after_its_end_a_token_opens_nothing(bench: Bench, pass_: Pass, model: ModelServer) -> None:
    root = await bench.open(pass_)
    async with bench.http.post(f"{root}/v1/messages", json=ASK, headers=auth(pass_)) as reply:
        assert reply.status == 200
    await pass_.close()
    await pass_.close()
    with pytest.raises(aiohttp.ClientError):
        await bench.http.post(f"{root}/v1/messages", json=ASK, headers=auth(pass_))
    assert len(model.requests) == 1


async def test_closing_ends_what_is_under_way_and_writes_it_down(bench: Bench, gateway: Gateway) -> None:
    waiting, gone = asyncio.Event(), asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": begun\n\n")
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        return response

    pass_ = gateway.admit(bench.account(await bench.provider(handler), "anthropic"), bench.ledger)
    url = f"{await bench.open(pass_)}/v1/messages"
    async with bench.http.post(url, json={**ASK, "stream": True}, headers=auth(pass_)) as reply:
        await waiting.wait()
        await reply.content.readany()
        await pass_.close()
        assert [one["ended"] for one in bench.exchanges()] == ["closed"]
        with pytest.raises(aiohttp.ClientPayloadError):
            await reply.read()
    async with asyncio.timeout(10):
        await gone.wait()


async def test_waiting_for_the_provider_is_measured(bench: Bench, gateway: Gateway) -> None:
    async with ModelServer([Say("slow")], latency=0.2) as slow:
        pass_ = gateway.admit(bench.account(slow.url, "anthropic"), bench.ledger)
        url = f"{await bench.open(pass_)}/v1/messages"

        async def ask() -> None:
            async with bench.http.post(url, json=ASK, headers=auth(pass_)) as reply:
                await reply.read()

        assert pass_.waiting_seconds == 0
        await ask()
        alone = pass_.waiting_seconds
        await asyncio.gather(ask(), ask(), ask())
    first, *latencies = [float(str(one["latency"])) for one in bench.exchanges()]
    assert 0.2 <= first <= alone
    assert 0.2 <= max(latencies) <= pass_.waiting_seconds - alone < sum(latencies)


async def test_a_model_that_was_not_configured_is_refused(bench: Bench, pass_: Pass, model: ModelServer) -> None:
    url = f"{await bench.open(pass_)}/v1/messages"
    async with bench.http.post(url, json={**ASK, "model": "gpt-5.5"}, headers=auth(pass_)) as reply:
        assert reply.status == 404
        assert "'gpt-5.5' is not one that this rollout was configured for" in await reply.text()
    raw = b'{"model": "claude-sonnet-4-6", "max_tokens": 1, "messages": [], "model": "gpt-5.5"}'
    async with bench.http.post(url, data=raw, headers=auth(pass_)) as reply:
        assert reply.status == 400
    assert not model.requests
    assert [(one["operation"], one["status"]) for one in bench.exchanges()] == [("refused", 404), ("refused", 400)]
    assert pass_.tripped is None


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/hello", 404),
        ("HEAD", "/", 404),
        ("POST", "/v1/files", 404),
        ("DELETE", "/v1/models/claude", 404),
        ("POST", "/v1/messages/batches", 404),
        ("GET", "/v1/models/%2e%2e/files", 404),
    ],
)
async def test_what_no_dialect_has_is_refused_in_words_of_the_dialect(
    bench: Bench, pass_: Pass, model: ModelServer, method: str, path: str, status: int
) -> None:
    async with bench.http.request(method, f"{await bench.open(pass_)}{path}", headers=auth(pass_)) as reply:
        assert reply.status == status
        if method != "HEAD":
            assert (await reply.json())["type"] == "error"
    assert not model.requests


async def test_a_websocket_is_declined_so_that_the_client_falls_back(
    bench: Bench, gateway: Gateway, model: ModelServer
) -> None:
    pass_ = gateway.admit(bench.account(model.url, "openai-responses"), bench.ledger)
    root = await bench.open(pass_)
    headers = {"Authorization": f"Bearer {pass_.token}"}
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await bench.http.ws_connect(f"{root}/v1/responses", headers=headers)
    assert refused.value.status == 426
    async with bench.http.post(f"{root}/v1/responses", json={"model": "m", "input": "hi"}, headers=headers) as reply:
        assert reply.status == 200


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:1/v1/messages", "//127.0.0.1:1/v1/messages", "/v1/../v1/messages", "*"]
)
async def test_no_other_host_can_be_reached(bench: Bench, pass_: Pass, model: ModelServer, target: str) -> None:
    body = json.dumps(ASK).encode()
    head = f"POST {target} HTTP/1.1\r\nHost: x\r\nx-api-key: {pass_.token}\r\nContent-Length: {len(body)}\r\n\r\n"
    answer = await talk(await bench.open(pass_), head.encode() + body)
    assert answer.split(b" ")[1] in (b"400", b"404")
    assert not model.requests


async def test_connect_is_refused(bench: Bench, pass_: Pass, model: ModelServer) -> None:
    answer = await talk(
        await bench.open(pass_), f"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\nx-api-key: {pass_.token}\r\n\r\n".encode()
    )
    assert answer.split(b" ")[1] in (b"400", b"404")
    assert not model.requests


SMUGGLED = [
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
    b"Content-Length: 5\r\nContent-Length: 50\r\n\r\nhello",
    b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"Content-Length: +5\r\n\r\nhello",
    b"Content-Length: -1\r\n\r\n",
    b"X: a\x00b\r\n\r\n",
    b"X : a\r\n\r\n",
    b"\nX: a\r\n\r\n",
    b"X: " + b"a" * 200_000 + b"\r\n\r\n",
    b"".join(b"X-%d: a\r\n" % number for number in range(5000)) + b"\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\nx\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n",
]


@pytest.mark.parametrize("tail", SMUGGLED)
async def test_malformed_requests_are_refused_and_others_go_on(
    bench: Bench, pass_: Pass, model: ModelServer, tail: bytes
) -> None:
    root = await bench.open(pass_)
    head = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: {pass_.token}\r\n".encode()
    answer = await talk(root, head + tail)
    assert answer == b"" or answer.split(b" ")[1] in (b"400", b"413", b"431", b"501")
    assert not model.requests
    async with bench.http.post(f"{root}/v1/messages", json=ASK, headers=auth(pass_)) as reply:
        assert reply.status == 200


async def test_a_request_that_is_too_large_is_refused(
    bench: Bench, pass_: Pass, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchflow.gateway.door.REQUEST_LIMIT", 1000)
    url = f"{await bench.open(pass_)}/v1/messages"

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    for data in (b"x" * 2000, endless()):
        async with bench.http.post(url, data=data, headers=auth(pass_)) as reply:
            assert reply.status == 413
            assert (await reply.json())["error"]["type"] == "request_too_large"
    async with bench.http.post(url, json=ASK, headers=auth(pass_)) as reply:
        assert reply.status == 200
    assert len(model.requests) == 1


async def test_a_bomb_is_not_unpacked(bench: Bench, pass_: Pass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchflow.gateway.body.DECODED_LIMIT", 10_000_000)
    url = f"{await bench.open(pass_)}/v1/messages"
    bomb = gzip.compress(bytes(50_000_000))
    async with bench.http.post(url, data=bomb, headers={**auth(pass_), "Content-Encoding": "gzip"}) as reply:
        assert reply.status == 400


async def test_a_client_that_dawdles_is_let_go(
    bench: Bench, gateway: Gateway, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = bench.account(model.url, "anthropic")
    monkeypatch.setattr("benchflow.gateway.door.BODY_TIMEOUT", 0.2)
    pass_ = gateway.admit(account, bench.ledger)
    root = await bench.open(pass_)
    head = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: {pass_.token}\r\nContent-Length: 500\r\n\r\n"
    assert b" 408 " in await talk(root, head.encode() + b"{")
    monkeypatch.setattr("benchflow.gateway.admission.HEAD_TIMEOUT", 0.2)
    hasty = await bench.open(gateway.admit(account, bench.ledger))
    assert await talk(hasty, b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n") == b""


async def test_connections_are_counted(bench: Bench, pass_: Pass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchflow.gateway.admission.CONNECTIONS", 3)
    root = await bench.open(pass_)
    port = int(root.rsplit(":", 1)[1])
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    for _, one in [*held, (reader, writer)]:
        one.close()
        await one.wait_closed()


async def test_a_client_that_asks_first_is_told_to_go_on(bench: Bench, pass_: Pass) -> None:
    url = f"{await bench.open(pass_)}/v1/messages"
    async with bench.http.post(url, json=ASK, headers=auth(pass_), expect100=True) as reply:
        assert reply.status == 200


async def test_refusals_do_not_fill_the_ledger(bench: Bench, pass_: Pass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchflow.gateway.admission.REFUSALS_KEPT", 3)
    root = await bench.open(pass_)
    for _ in range(10):
        async with bench.http.get(f"{root}/v1/secrets", headers=auth(pass_)) as reply:
            assert reply.status == 404
    assert (len(bench.exchanges()), pass_.refused) == (3, 10)


async def test_many_requests_on_one_connection(bench: Bench, pass_: Pass) -> None:
    """Pipelined: all are answered, in their order."""
    root = await bench.open(pass_)
    body = json.dumps(ASK).encode()
    head = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: {pass_.token}\r\nContent-Length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", int(root.rsplit(":", 1)[1]))
    writer.write((head.encode() + body) * 20)
    seen = b""
    async with asyncio.timeout(20):
        while seen.count(b"HTTP/1.1 200") < 20:
            seen += await reader.read(65536)
    writer.close()
    await writer.wait_closed()
    await pass_.close()
    assert pass_.usage.requests == 20
