"""One exchange: untouched bytes, busy providers, fatal errors, answers that break off, clients that leave."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import brotli  # type: ignore[import-untyped]
import pytest
from aiohttp import web

from benchflow.testing.model_server import Fail, ModelServer, Say

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.gateway.conftest import Bench

    from benchflow.agent.spec import Dialect
    from benchflow.gateway.admission import Pass

ASK: dict[str, Any] = {"model": "claude-sonnet-4-6", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
ANSWER: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-6",
    "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 10, "output_tokens": 2},
}
START = {"type": "message_start", "message": {**ANSWER, "content": []}}


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events)


def auth(pass_: Pass) -> dict[str, str]:
    return {"x-api-key": pass_.token, "anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("encoding", "encode"), [("gzip", gzip.compress), ("br", brotli.compress), ("identity", bytes)]
)
async def test_compressed_answers_pass_untouched_and_are_read_for_the_ledger(
    bench: Bench, encoding: str, encode: Callable[[bytes], bytes]
) -> None:
    sent = encode(json.dumps(ANSWER).encode())

    async def handler(request: web.BaseRequest) -> web.Response:
        return web.Response(body=sent, headers={"Content-Encoding": encoding, "Content-Type": "application/json"})

    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(await bench.provider(handler), "anthropic"), bench.ledger)
    url = f"{await bench.open(pass_)}/v1/messages"
    async with bench.http.post(url, json=ASK, headers={**auth(pass_), "Accept-Encoding": "gzip, br"}) as reply:
        assert await reply.read() == sent
        assert reply.headers["Content-Encoding"] == encoding
    (exchange,) = bench.exchanges()
    assert exchange["response"]["body"] == ANSWER  # type: ignore[index]
    assert exchange["tokens"]["output"] == 2  # type: ignore[index]


async def test_a_request_reaches_the_provider_byte_for_byte(bench: Bench) -> None:
    seen: list[tuple[bytes, str, Any]] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append((await request.read(), request.raw_path, request.headers))
        return web.json_response(ANSWER)

    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(await bench.provider(handler), "anthropic"), bench.ledger)
    url = f"{await bench.open(pass_)}/v1/messages?beta=true"
    raw = b'{ "max_tokens":9 ,\n"model":"claude-sonnet-4-6","messages":[{"role":"user","content":"\\u00e9\xc3\xa9"}] }'
    headers = {**auth(pass_), "Content-Type": "application/json", "anthropic-beta": "x,y", "Cookie": "a=b"}
    async with bench.http.post(url, data=raw, headers=headers) as reply:
        assert reply.status == 200
    ((body, path, given),) = seen
    assert (body, path) == (raw, "/v1/messages?beta=true")
    assert given["anthropic-beta"] == "x,y"
    assert "Cookie" not in given


async def test_a_busy_provider_is_asked_again_and_the_client_does_not_notice(bench: Bench) -> None:
    busy = [Fail(429, retry_after=0.01), Fail(529, retry_after=0), Fail(503, retry_after=0.02)]
    async with ModelServer([*busy, Say("there")]) as model:
        gateway = await bench.gateway()
        pass_ = gateway.admit(bench.account(model.url, "anthropic"), bench.ledger)
        url = f"{await bench.open(pass_)}/v1/messages"
        async with bench.http.post(url, json=ASK, headers=auth(pass_)) as reply:
            assert reply.status == 200
            assert (await reply.json())["content"][-1]["text"] == "there"
    (exchange,) = bench.exchanges()
    statuses = [one["status"] for one in exchange["retries"]]  # type: ignore[attr-defined]
    assert statuses == [429, 529, 503]
    assert exchange["waited"] > 0.02  # type: ignore[operator]
    assert pass_.usage.requests == 1
    assert pass_.tripped is None


async def test_a_provider_that_stays_busy_is_heard_of_in_the_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchflow.gateway.flight.RETRY_SECONDS", 2.0)
    async with ModelServer([Fail(429, retry_after=0.3)] * 50 + [Say("never")]) as model:
        gateway = await bench.gateway()
        pass_ = gateway.admit(bench.account(model.url, "anthropic"), bench.ledger)
        url = f"{await bench.open(pass_)}/v1/messages"
        async with bench.http.post(url, json=ASK, headers=auth(pass_)) as reply:
            assert reply.status == 429
            assert (await reply.json())["error"]["type"] == "rate_limit_error"
        assert 1 < len(model.requests) < 20
    (exchange,) = bench.exchanges()
    assert (exchange["status"], pass_.usage.requests) == (429, 0)


async def test_a_wait_that_is_too_long_is_the_clients_affair(bench: Bench) -> None:
    async with ModelServer([Fail(429, retry_after=3600), Say("never")]) as model:
        gateway = await bench.gateway()
        pass_ = gateway.admit(bench.account(model.url, "anthropic"), bench.ledger)
        url = f"{await bench.open(pass_)}/v1/messages"
        async with bench.http.post(url, json=ASK, headers=auth(pass_)) as reply:
            assert (reply.status, reply.headers["Retry-After"]) == (429, "3600")


async def test_other_errors_are_the_clients_affair(bench: Bench) -> None:
    async with ModelServer([Fail(500), Fail(400), Say("ok")]) as model:
        gateway = await bench.gateway()
        pass_ = gateway.admit(bench.account(model.url, "anthropic"), bench.ledger)
        url = f"{await bench.open(pass_)}/v1/messages"
        for status in (500, 400, 200):
            async with bench.http.post(url, json=ASK, headers=auth(pass_)) as reply:
                assert reply.status == status
    assert [one["status"] for one in bench.exchanges()] == [500, 400, 200]
    assert bench.exchanges()[0]["response"]["body"]["error"]["message"] == "scripted error 500"  # type: ignore[index]
    assert (pass_.usage.requests, pass_.tripped) == (1, None)


@pytest.mark.parametrize(("status", "kind"), [(401, "key"), (403, "key"), (404, "model")])
async def test_a_fatal_error_is_found_out_once_for_all(bench: Bench, key: str, status: int, kind: str) -> None:
    asked = 0

    async def handler(request: web.BaseRequest) -> web.Response:
        nonlocal asked
        asked += 1
        words = f"{key} is no good for claude-sonnet-4-6"
        return web.json_response({"type": "error", "error": {"type": "x", "message": words}}, status=status)

    gateway = await bench.gateway()
    account = bench.account(await bench.provider(handler), "anthropic", model="claude-sonnet-4-6")
    passes = [gateway.admit(account, bench.ledger) for _ in range(5)]
    for pass_ in passes:
        url = f"{await bench.open(pass_)}/v1/messages"
        for _ in range(2):
            async with bench.http.post(url, json=ASK, headers=auth(pass_)) as reply:
                assert reply.status == (401 if kind == "key" and reply.status != 403 else status)
                words = (await reply.json())["error"]["message"]
                assert "HTTP" in words
                assert key not in words
    assert asked == 1
    assert gateway.alarm.trip is not None
    assert gateway.alarm.trip.fatal
    assert {pass_.tripped for pass_ in passes} == {gateway.alarm.trip}
    assert gateway.alarm.trip.kind == kind
    assert key not in bench.path.read_text()


async def test_a_key_that_a_provider_repeats_is_not_passed_on(bench: Bench, key: str) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        said = gzip.compress(json.dumps({"error": {"message": f"bad request with {key}"}}).encode())
        return web.Response(status=400, body=said, headers={"Content-Encoding": "gzip"})

    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(await bench.provider(handler), "anthropic"), bench.ledger)
    async with bench.http.post(f"{await bench.open(pass_)}/v1/messages", json=ASK, headers=auth(pass_)) as reply:
        assert reply.status == 400
        assert json.loads(await reply.read()) == {"error": {"message": "bad request with ***"}}


async def test_a_helper_model_that_is_missing_stops_nothing(bench: Bench) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        if json.loads(await request.read())["model"] == "helper":
            return web.json_response({"error": {"code": "model_not_found", "message": "helper"}}, status=404)
        return web.json_response(ANSWER)

    gateway = await bench.gateway()
    account = bench.account(await bench.provider(handler), "anthropic", model="claude-sonnet-4-6")
    pass_ = gateway.admit(account, bench.ledger)
    url = f"{await bench.open(pass_)}/v1/messages"
    for model, status in (("helper", 404), ("claude-sonnet-4-6", 200)):
        async with bench.http.post(url, json={**ASK, "model": model}, headers=auth(pass_)) as reply:
            assert reply.status == status
    assert gateway.alarm.trip is None


async def test_a_redirect_is_not_followed_and_not_shown(bench: Bench) -> None:
    asked: list[str] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        asked.append(request.path)
        return web.Response(status=307, headers={"Location": "/v1/files"})

    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(await bench.provider(handler), "anthropic"), bench.ledger)
    async with bench.http.post(f"{await bench.open(pass_)}/v1/messages", json=ASK, headers=auth(pass_)) as reply:
        assert reply.status == 502
        assert "Location" not in reply.headers
    assert asked == ["/v1/messages"]


async def test_a_provider_that_is_not_there_is_tried_a_few_times(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchflow.gateway.flight.CONNECT_WAIT", 0.01)
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(f"http://127.0.0.1:{port}", "anthropic"), bench.ledger)
    url = f"{await bench.open(pass_)}/v1/messages"
    async with bench.http.post(url, json=ASK, headers=auth(pass_)) as reply:
        assert reply.status == 502
    server.close()
    await server.wait_closed()
    async with bench.http.post(url, json=ASK, headers=auth(pass_)) as reply:
        assert reply.status == 502
        assert "cannot be reached" in (await reply.json())["error"]["message"]
    hung_up, refused = bench.exchanges()
    assert len(hung_up["retries"]) == len(refused["retries"]) == 3  # type: ignore[arg-type]
    assert (hung_up["ended"], refused["ended"], pass_.usage.requests) == ("failed", "failed", 0)


@pytest.mark.parametrize("chunked", [True, False])
async def test_an_answer_that_breaks_off_breaks_off_for_the_client_too(bench: Bench, chunked: bool) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.content_length = None if chunked else 100_000
        await response.prepare(request)
        await response.write(sse(START))
        assert request.transport
        request.transport.close()
        return response

    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(await bench.provider(handler), "anthropic"), bench.ledger)
    url = f"{await bench.open(pass_)}/v1/messages"
    async with bench.http.post(url, json={**ASK, "stream": True}, headers=auth(pass_)) as reply:
        assert reply.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await reply.read()
    await pass_.close()
    (exchange,) = bench.exchanges()
    assert exchange["ended"] == "broken"
    assert "broke off" in str(exchange["error"])
    assert exchange["tokens"]["input"] == 10  # type: ignore[index]
    assert pass_.usage.requests == 1


async def test_a_stream_without_its_last_event_is_marked_as_broken(bench: Bench) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        return web.Response(body=sse(START), content_type="text/event-stream")

    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(await bench.provider(handler), "anthropic"), bench.ledger)
    url = f"{await bench.open(pass_)}/v1/messages"
    async with bench.http.post(url, json={**ASK, "stream": True}, headers=auth(pass_)) as reply:
        assert await reply.read() == sse(START)
    assert [one["ended"] for one in bench.exchanges()] == ["broken"]


async def test_when_the_client_leaves_the_provider_is_let_go(bench: Bench) -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(sse(START))
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        return response

    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(await bench.provider(handler), "anthropic"), bench.ledger)
    url = f"{await bench.open(pass_)}/v1/messages"
    async with bench.http.post(url, json={**ASK, "stream": True}, headers=auth(pass_)) as reply:
        await reply.content.readany()
        reply.close()
    await begun.wait()
    async with asyncio.timeout(10):
        await gone.wait()
    await pass_.close()
    (exchange,) = bench.exchanges()
    assert exchange["ended"] == "left"
    assert pass_.usage.requests == 1


async def test_a_client_that_hangs_up_at_the_last_event_has_had_it_all(bench: Bench) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(sse(START) + sse({"type": "message_stop"}))
        await asyncio.Event().wait()
        return response

    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(await bench.provider(handler), "anthropic"), bench.ledger)
    url = f"{await bench.open(pass_)}/v1/messages"
    async with bench.http.post(url, json={**ASK, "stream": True}, headers=auth(pass_)) as reply:
        while b"message_stop" not in await reply.content.readline():
            pass
        reply.close()
    await pass_.close()
    (exchange,) = bench.exchanges()
    assert exchange["ended"] == "complete"


async def test_a_slow_client_holds_the_provider_back(bench: Bench) -> None:
    written = 0
    size = 64 * 1024
    gone = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for _ in range(1000):
                await response.write(b": " + b"x" * (size - 4) + b"\n\n")
                written += size
        finally:
            gone.set()
        return response

    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(await bench.provider(handler), "anthropic"), bench.ledger)
    root = await bench.open(pass_)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(root.rsplit(":", 1)[1]), limit=size)
    body = json.dumps({**ASK, "stream": True}).encode()
    head = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: {pass_.token}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await reader.read(100)
    before = -1
    while written != before:  # until nothing moves any more
        before = written
        await asyncio.sleep(0.3)
    assert written < 500 * size
    writer.close()
    await writer.wait_closed()
    async with asyncio.timeout(10):
        await gone.wait()
    await pass_.close()
    assert [one["ended"] for one in bench.exchanges()] == ["left"]


async def test_an_answer_without_end_is_cut(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchflow.gateway.flight.RESPONSE_LIMIT", 1_000_000)

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(b"data: " + b"x" * 10_000 + b"\n\n")

    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(await bench.provider(handler), "anthropic"), bench.ledger)
    url = f"{await bench.open(pass_)}/v1/messages"
    async with bench.http.post(url, json={**ASK, "stream": True}, headers=auth(pass_)) as reply:
        with pytest.raises(aiohttp.ClientPayloadError):
            await reply.read()
    assert "more than 1000000 bytes" in str(bench.exchanges()[0]["error"])


async def test_a_large_answer_passes_and_its_record_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchflow.gateway.capture.BODY_LIMIT", 100_000)
    monkeypatch.setattr("benchflow.gateway.ledger.BODY_LIMIT", 100_000)
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "y" * 1000}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    ended: list[dict[str, Any]] = [
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4321}},
        {"type": "message_stop"},
    ]
    sent = sse(START, block, *[delta] * 2000, *ended)

    async def handler(request: web.BaseRequest) -> web.Response:
        return web.Response(body=sent, content_type="text/event-stream")

    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(await bench.provider(handler), "anthropic"), bench.ledger)
    url = f"{await bench.open(pass_)}/v1/messages"
    async with bench.http.post(url, json={**ASK, "stream": True}, headers=auth(pass_)) as reply:
        assert await reply.read() == sent
    (exchange,) = bench.exchanges()
    assert exchange["tokens"]["output"] == 4321  # type: ignore[index]
    assert exchange["response"]["truncated"] is True  # type: ignore[index]
    assert exchange["ended"] == "complete"
    assert bench.path.stat().st_size < 110_000


async def test_a_ledger_that_cannot_be_written_ends_the_rollout_and_not_the_answer(bench: Bench) -> None:
    async with ModelServer([Say("heard")]) as model:
        gateway = await bench.gateway()
        pass_ = gateway.admit(bench.account(model.url, "anthropic"), bench.ledger)
        url = f"{await bench.open(pass_)}/v1/messages"
        bench.ledger.close()
        for status in (200, 402):
            async with bench.http.post(url, json=ASK, headers=auth(pass_)) as reply:
                assert reply.status == status
    assert pass_.tripped is not None
    assert pass_.tripped.kind == "ledger"
    assert "cannot write" in pass_.tripped.message


@pytest.mark.parametrize(
    ("dialect", "path"),
    [("openai-chat", "/v1/messages"), ("anthropic", "/v1/chat/completions"), ("gemini", "/v1/responses")],
)
async def test_a_dialect_that_the_provider_does_not_speak_is_refused_clearly(
    bench: Bench, dialect: Dialect, path: str
) -> None:
    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account("http://127.0.0.1:9", dialect), bench.ledger)
    async with bench.http.post(f"{await bench.open(pass_)}{path}", json=ASK, headers=auth(pass_)) as reply:
        assert reply.status == 400
        assert "benchflow[litellm]" in (await reply.json())["error"]["message"]
