"""What a process in a sandbox may try on the wire itself: it reaches no other host and no file, and others go on."""

from __future__ import annotations

import asyncio
import json
import random
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from benchflow.testing.model_server import ModelServer, Say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from tests.gateway.conftest import Bench

    from benchflow.gateway.admission import Pass

ASK: dict[str, Any] = {"model": "m-1", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
BODY = json.dumps(ASK).encode()


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer([Say("hello")]) as server:
        yield server


@pytest.fixture
async def pass_(bench: Bench, model: ModelServer) -> Pass:
    gateway = await bench.gateway()
    return gateway.admit(bench.account(model.url, "anthropic"), bench.ledger)


async def talk(root: str, said: bytes, *, hang_up: bool = True) -> bytes:
    """Send bytes and read to the end. Who hangs up has said all, and does not wait for an answer that takes long."""
    parts = urlsplit(root)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(said)
        if hang_up:
            writer.write_eof()
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def post(pass_: Pass, *headers: str, target: str = "/v1/messages", body: bytes = BODY) -> bytes:
    lines = [f"POST {target} HTTP/1.1", f"x-api-key: {pass_.token}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def still_answers(bench: Bench, pass_: Pass, root: str) -> None:
    async with bench.http.post(f"{root}/v1/messages", json=ASK, headers={"x-api-key": pass_.token}) as reply:
        assert reply.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        ["Host: evil.example"],
        ["Host: 169.254.169.254"],
        ["Host: x", "X-Forwarded-Host: evil.example", "X-Forwarded-For: 127.0.0.1", "Forwarded: host=evil.example"],
        ["Host: x", "X-Original-URL: /admin", "X-Rewrite-URL: /admin", "X-HTTP-Method-Override: DELETE"],
        ["Host: x", "Connection: x-api-key, content-length", "X-Real-IP: 127.0.0.1"],
    ],
)
async def test_no_header_leads_elsewhere(bench: Bench, headers: list[str]) -> None:
    seen: list[web.BaseRequest] = []

    async def provider(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request)
        return web.json_response({"type": "message", "content": []})

    url = await bench.provider(provider)
    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(url, "anthropic"), bench.ledger)
    answer = await talk(await bench.open(pass_), post(pass_, "Connection: close", *headers), hang_up=False)
    assert answer.split(b" ")[1] == b"200"
    (request,) = seen
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert request.headers.getall("Host") == [urlsplit(url).netloc]
    passed = {name.lower() for name in request.headers}
    assert not passed & {"x-forwarded-host", "x-forwarded-for", "forwarded", "x-http-method-override"}
    assert "evil.example" not in str(request.headers.getall("Host"))


@pytest.mark.parametrize(
    "target",
    [
        "/v1/messages/%2e%2e/%2e%2e/admin",
        "/v1/%2e%2e/%2e%2e/etc/passwd",
        "/v1/messages%00.json",
        "/v1/messages%0d%0aHost:%20evil.example",
        "/v1beta/models/..%2f..%2fadmin:generateContent",
        "/v1beta/models/x@evil.example%2f:generateContent",
        "file:///etc/passwd",
        "ftp://evil.example/v1/messages",
        "http://evil.example/v1/messages",
        "https://evil.example:443/v1/messages",
        "evil.example:443",
        "@evil.example/v1/messages",
        "\\\\evil.example\\v1\\messages",
        "///evil.example/v1/messages",
    ],
)
async def test_no_target_leads_elsewhere(bench: Bench, pass_: Pass, model: ModelServer, target: str) -> None:
    root = await bench.open(pass_)
    answer = await talk(root, post(pass_, "Host: x", target=target))
    assert answer == b"" or answer.split(b" ")[1] in (b"400", b"404")
    assert not model.requests
    await still_answers(bench, pass_, root)


@pytest.mark.parametrize(
    "said",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"\x05\x01\x00",
        b"GET / HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAA\r\n\r\n",
        b"GET /v1/models HTTP/9.9\r\n\r\n",
        b"\r\n" * 5000,
        b"A" * 1_000_000,
        b"POST " + b"/a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
async def test_other_protocols_are_none_here(bench: Bench, pass_: Pass, model: ModelServer, said: bytes) -> None:
    root = await bench.open(pass_)
    answer = await talk(root, said)
    assert answer == b"" or answer.split(b" ")[1][:1] == b"4"
    assert not model.requests
    await still_answers(bench, pass_, root)


async def test_noise_crashes_nothing(bench: Bench, pass_: Pass, model: ModelServer) -> None:
    root = await bench.open(pass_)
    dice = random.Random(7)
    good = post(pass_, "Host: x")
    for _ in range(60):
        start = dice.randrange(len(good) - len(BODY))
        broken = bytearray(good)
        broken[start : start + dice.randrange(1, 9)] = dice.randbytes(dice.randrange(9))
        await talk(root, bytes(broken))
    assert all(request.path.startswith("/v1/messages") for request in model.requests)
    await still_answers(bench, pass_, root)


async def test_a_second_request_hidden_behind_the_first_is_examined_like_any(
    bench: Bench, pass_: Pass, model: ModelServer
) -> None:
    hidden = post(pass_, "Host: x", "Connection: close").replace(pass_.token.encode(), b"bf-somebody-elses-token")
    answer = await talk(await bench.open(pass_), post(pass_, "Host: x") + hidden, hang_up=False)
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"401"]
    assert len(model.requests) == 1


async def test_clients_that_vanish_leave_nothing(bench: Bench, pass_: Pass, model: ModelServer) -> None:
    root = await bench.open(pass_)
    parts = urlsplit(root)
    good = post(pass_, "Host: x")
    for cut in range(0, len(good) - 1, 20):
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(good[:cut])
        await writer.drain()
        writer.transport.abort()
    await still_answers(bench, pass_, root)
    await pass_.close()
    assert len(model.requests) == 1


async def test_what_a_request_names_is_not_fetched(bench: Bench, pass_: Pass, model: ModelServer) -> None:
    fetched: list[str] = []

    async def elsewhere(request: web.BaseRequest) -> web.StreamResponse:
        fetched.append(request.path)
        return web.Response()

    url = await bench.provider(elsewhere)
    images = [f"{url}/a.png", "file:///etc/passwd"]
    content = [{"type": "image", "source": {"type": "url", "url": image}} for image in images]
    body = {**ASK, "messages": [{"role": "user", "content": content}], "api_base": url, "base_url": url}
    headers = {"x-api-key": pass_.token}
    async with bench.http.post(f"{await bench.open(pass_)}/v1/messages", json=body, headers=headers) as reply:
        assert reply.status == 200
    assert not fetched
    assert "root:" not in model.requests[0].text


async def test_a_provider_that_cannot_prove_who_it_is_gets_nothing(
    bench: Bench, impostor: AbstractAsyncContextManager[tuple[str, list[bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchflow.gateway.flight.CONNECT_WAIT", 0.0)
    gateway = await bench.gateway()
    async with impostor as (url, heard):
        pass_ = gateway.admit(bench.account(url, "anthropic"), bench.ledger)
        asked = {"model": "m-1", "max_tokens": 9, "messages": []}
        headers = {"x-api-key": pass_.token}
        async with bench.http.post(f"{await bench.open(pass_)}/v1/messages", json=asked, headers=headers) as reply:
            assert reply.status == 502
            assert "certificate" in (await reply.text()).lower()
    assert heard == []
