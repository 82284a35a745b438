"""Clouds that speak protocols of their own, asked by LiteLLM: Bedrock and Vertex, streaming and whole."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import struct
import warnings
import zlib
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest
import pytest_asyncio
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from benchflow.agent.catalog import get_agent
from benchflow.agent.credentials import resolve_credentials
from benchflow.gateway.account import account_of
from benchflow.gateway.server import Gateway

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the library's own source has some
    from google import genai

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from tests.gateway.conftest import Bench

    from benchflow.gateway.account import Account
    from benchflow.gateway.admission import Pass
    from benchflow.gateway.dialects.base import Json
    from benchflow.gateway.translate import Translator

pytestmark = [pytest.mark.needs("litellm"), pytest.mark.asyncio(loop_scope="module")]

INPUT, CACHED, OUTPUT = 1064, 64, 18
"""The usage of every answer; what was cached is part of the input."""

STEPS = ["I ", "run ", "it."]
COMMAND = "echo hi > 'a b'.txt"
DONE = "All done."
SHELL: dict[str, Any] = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOKEN = "ya29.short-lived"
PATIENCE = 30.0
"""Seconds that a cloud waits for the client to have seen the beginning of an answer."""


def aws_message(headers: dict[str, str], payload: bytes) -> bytes:
    """One message of AWS's event stream: lengths, their checksum, headers, payload, and a checksum of it all."""
    head = b"".join(
        struct.pack("!B", len(name)) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack("!II", 16 + len(head) + len(payload), len(head))
    checked = prelude + struct.pack("!I", zlib.crc32(prelude)) + head + payload
    return checked + struct.pack("!I", zlib.crc32(checked))


def aws_event(kind: str, document: Json) -> bytes:
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return aws_message(headers, json.dumps({**document, "p": "abcdefghij"}).encode())


def sse(document: Json, name: str = "") -> bytes:
    head = f"event: {name}\r\n" if name else ""
    return f"{head}data: {json.dumps(document)}\r\n\r\n".encode()


def halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


class Claude:
    """Anthropic's messages, as both clouds serve them."""

    def whole(self, *, call: bool) -> Json:
        said: list[Json] = [{"type": "text", "text": "".join(STEPS) if call else DONE}]
        tool: list[Json] = [{"type": "tool_use", "id": "tooluse_1", "name": "bash", "input": {"command": COMMAND}}]
        usage = {"input_tokens": INPUT - CACHED, "cache_read_input_tokens": CACHED, "output_tokens": OUTPUT}
        head: Json = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6"}
        why = "tool_use" if call else "end_turn"
        return {**head, "content": said + tool * call, "stop_reason": why, "stop_sequence": None, "usage": usage}

    def events(self, *, call: bool) -> Iterator[Json]:
        message = self.whole(call=call)
        usage: Any = message["usage"]
        begun = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
        yield {"type": "message_start", "message": begun}
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        for piece in STEPS if call else [DONE]:
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        yield {"type": "content_block_stop", "index": 0}
        if call:
            tool = {"type": "tool_use", "id": "tooluse_1", "name": "bash", "input": {}}
            yield {"type": "content_block_start", "index": 1, "content_block": tool}
            for piece in ("", *halves(json.dumps({"command": COMMAND}))):
                delta = {"type": "input_json_delta", "partial_json": piece}
                yield {"type": "content_block_delta", "index": 1, "delta": delta}
            yield {"type": "content_block_stop", "index": 1}
        why = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield {"type": "message_delta", "delta": why, "usage": {"output_tokens": OUTPUT}}
        yield {"type": "message_stop"}


class Converse:
    """Bedrock's own protocol, which all its models speak."""

    def usage(self) -> Json:
        fresh = INPUT - CACHED
        counts = {"inputTokens": fresh, "outputTokens": OUTPUT, "cacheReadInputTokens": CACHED}
        return {**counts, "totalTokens": INPUT + OUTPUT, "cacheWriteInputTokens": 0}

    def whole(self, *, call: bool) -> Json:
        tool = {"toolUse": {"toolUseId": "tooluse_1", "name": "bash", "input": {"command": COMMAND}}}
        said = [{"text": "".join(STEPS) if call else DONE}, *([tool] if call else [])]
        message = {"output": {"message": {"role": "assistant", "content": said}}, "metrics": {"latencyMs": 1}}
        return {**message, "stopReason": "tool_use" if call else "end_turn", "usage": self.usage()}

    def events(self, *, call: bool) -> Iterator[tuple[str, Json]]:
        yield "messageStart", {"role": "assistant"}
        for piece in STEPS if call else [DONE]:
            yield "contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": piece}}
        yield "contentBlockStop", {"contentBlockIndex": 0}
        if call:
            start = {"toolUse": {"toolUseId": "tooluse_1", "name": "bash"}}
            yield "contentBlockStart", {"contentBlockIndex": 1, "start": start}
            for piece in halves(json.dumps({"command": COMMAND})):
                yield "contentBlockDelta", {"contentBlockIndex": 1, "delta": {"toolUse": {"input": piece}}}
            yield "contentBlockStop", {"contentBlockIndex": 1}
        yield "messageStop", {"stopReason": "tool_use" if call else "end_turn"}
        yield "metadata", {"usage": self.usage(), "metrics": {"latencyMs": 1}}


class Gemini:
    """Gemini as Vertex serves it: an answer is a stream of answers, the last one with the usage."""

    def whole(self, *, call: bool) -> Json:
        return self._answer([{"text": "".join(STEPS) if call else DONE}, *self._calls(call)], last=True)

    def events(self, *, call: bool) -> Iterator[Json]:
        for piece in STEPS if call else [DONE]:
            yield self._answer([{"text": piece}])
        yield self._answer(self._calls(call) or [{"text": ""}], last=True)

    def _calls(self, call: bool) -> list[Json]:
        return [{"functionCall": {"name": "bash", "args": {"command": COMMAND}}}] if call else []

    def _answer(self, parts: list[Json], *, last: bool = False) -> Json:
        candidate: Json = {"content": {"role": "model", "parts": parts}}
        answer: Json = {"candidates": [candidate], "modelVersion": "gemini-2.5-flash", "responseId": "r1"}
        if last:
            candidate["finishReason"] = "STOP"
            counts = {"promptTokenCount": INPUT, "candidatesTokenCount": OUTPUT, "cachedContentTokenCount": CACHED}
            answer["usageMetadata"] = {**counts, "totalTokenCount": INPUT + OUTPUT}
        return answer


class Cloud:
    """A double of Bedrock, of Vertex and of Google's token service. Keeps what it was asked: path, credential, body.

    Calls the tool first, then says that it is done. A stream stops after the first piece of its text until `seen` is
    set, so that an answer which is held back somewhere never ends; `gone` is set when its client leaves meanwhile. A
    `talkative` one says its first words again and again meanwhile. `fault` is said once, in the place of an answer;
    `exception` once, in the middle of a stream or, with `early`, as all of it.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.seen = asyncio.Event()
        self.gone = asyncio.Event()
        self.fault: web.Response | None = None
        self.exception = b""
        self.early = False
        self.talkative = False

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:  # noqa: PLR0911 - a table of calls
        body = await request.text()
        self.asked.append((request.path, request.headers.get("Authorization", ""), body))
        if request.path == "/token":
            return web.json_response({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"})
        if self.fault:
            fault, self.fault = self.fault, None
            return fault
        call = "bash" in body and not re.search("tool_result|toolResult|function_?[rR]esponse", body)
        verb = re.split("[/:]", request.path)[-1]
        match verb:
            case "converse":
                return web.json_response(Converse().whole(call=call))
            case "converse-stream":
                events = [aws_event(kind, event) for kind, event in Converse().events(call=call)]
                return await self._stream(request, events, "application/vnd.amazon.eventstream")
            case "invoke" | "rawPredict":
                return web.json_response(Claude().whole(call=call))
            case "invoke-with-response-stream":
                raw = [json.dumps(event).encode() for event in Claude().events(call=call)]
                events = [aws_event("chunk", {"bytes": base64.b64encode(one).decode()}) for one in raw]
                return await self._stream(request, events, "application/vnd.amazon.eventstream")
            case "streamRawPredict":
                events = [sse(event, str(event["type"])) for event in Claude().events(call=call)]
                return await self._stream(request, events, "text/event-stream")
            case "generateContent":
                return web.json_response(Gemini().whole(call=call))
            case "streamGenerateContent" if request.query.get("alt") == "sse":
                events = [sse(event) for event in Gemini().events(call=call)]
                return await self._stream(request, events, "text/event-stream")
        return web.Response(status=404)

    async def _stream(self, request: web.BaseRequest, events: list[bytes], kind: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        shown = 0 if self.early else next(number for number, event in enumerate(events) if _has_text(event)) + 1
        for event in events[:shown]:
            await response.write(event)
        if self.exception:
            await response.write(self.exception)
            self.exception, self.early = b"", False
            return response
        await self._wait(response, events[shown - 1])
        rest = b"".join(events[shown:])
        for cut in (rest[:7], rest[7:-5], rest[-5:]):  # no network keeps messages together
            await response.write(cut)
            await asyncio.sleep(0)
        return response

    async def _wait(self, response: web.StreamResponse, words: bytes) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while self.talkative:
                    await response.write(words)
                    await asyncio.sleep(0.05)
                await self.seen.wait()
        except asyncio.CancelledError:
            self.gone.set()
            raise


def _has_text(event: bytes) -> bool:
    if found := re.search(rb'"bytes": "([^"]+)"', event):
        event = base64.b64decode(found[1])
    return any(piece.encode() in event for piece in (STEPS[0], DONE))


type Ask = Callable[[str, str, str, asyncio.Event], Awaitable[tuple[Any, str]]]
"""A client of one dialect: asks twice, the second time with what the tool gave; the tool's input and the last words."""


async def of_anthropic(root: str, token: str, model: str, seen: asyncio.Event) -> tuple[Any, str]:
    messages: Any = [{"role": "user", "content": "hi"}]
    tools: Any = [{"name": "bash", "description": "a shell", "input_schema": SHELL}]
    async with anthropic.AsyncAnthropic(base_url=root, api_key=token, max_retries=0) as client:
        common: Any = {"model": model, "max_tokens": 99, "tools": tools}
        async with client.messages.stream(**common, messages=messages) as stream:
            async for _ in stream.text_stream:
                seen.set()
            first = await stream.get_final_message()
        assert first.stop_reason == "tool_use"
        (call,) = [block for block in first.content if block.type == "tool_use"]
        messages += [
            {"role": "assistant", "content": [block.model_dump() for block in first.content]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "hi"}]},
        ]
        async with client.messages.stream(**common, messages=messages) as stream:
            second = await stream.get_final_message()
    return call.input, second.content[-1].text  # type: ignore[union-attr]


async def of_chat(root: str, token: str, model: str, seen: asyncio.Event) -> tuple[Any, str]:
    asked: Any = [{"role": "user", "content": "hi"}]
    tools: Any = [{"type": "function", "function": {"name": "bash", "parameters": SHELL, "strict": True}}]
    async with openai.AsyncOpenAI(base_url=f"{root}/v1", api_key=token, max_retries=0) as client:
        common: Any = {"model": model, "tools": tools, "stream_options": {"include_usage": True}}
        async with client.chat.completions.stream(**common, messages=asked) as stream:
            async for event in stream:
                if event.type == "content.delta":
                    seen.set()
            said = (await stream.get_final_completion()).choices[0].message
        (call,) = said.tool_calls or []
        asked += [
            {"role": "assistant", "content": said.content, "tool_calls": [call.model_dump()]},
            {"role": "tool", "tool_call_id": call.id, "content": "hi"},
        ]
        async with client.chat.completions.stream(**common, messages=asked) as stream:
            second = await stream.get_final_completion()
    return json.loads(call.function.arguments), str(second.choices[0].message.content)


async def of_responses(root: str, token: str, model: str, seen: asyncio.Event) -> tuple[Any, str]:
    asked: Any = [{"role": "user", "content": "hi"}]
    tools: Any = [{"type": "function", "name": "bash", "parameters": SHELL, "strict": False}]
    async with openai.AsyncOpenAI(base_url=f"{root}/v1", api_key=token, max_retries=0) as client:
        common: Any = {"model": model, "tools": tools, "store": False}
        async with client.responses.stream(**common, input=asked) as stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    seen.set()
            first = await stream.get_final_response()
        (call,) = [item for item in first.output if item.type == "function_call"]
        asked += [
            {"type": "function_call", "call_id": call.call_id, "name": "bash", "arguments": call.arguments},
            {"type": "function_call_output", "call_id": call.call_id, "output": "hi"},
        ]
        async with client.responses.stream(**common, input=asked) as stream:
            second = await stream.get_final_response()
    return json.loads(call.arguments), second.output_text


async def of_gemini(root: str, token: str, model: str, seen: asyncio.Event) -> tuple[Any, str]:
    types = genai.types
    declared = types.FunctionDeclaration(name="bash", parameters_json_schema=SHELL)
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[declared])])
    asked: list[Any] = [types.Content(role="user", parts=[types.Part(text="hi")])]
    options = types.HttpOptions(base_url=root)
    async with genai.Client(api_key=token, http_options=options).aio as client:
        common: Any = {"model": model, "config": config}
        stream = await client.models.generate_content_stream(**common, contents=asked)
        parts: list[Any] = []
        async for piece in stream:
            seen.set()
            parts += piece.parts or []
        (call,) = [part.function_call for part in parts if part.function_call]
        asked += [
            types.Content(role="model", parts=parts),
            types.Content(role="user", parts=[types.Part.from_function_response(name="bash", response={"out": "hi"})]),
        ]
        stream = await client.models.generate_content_stream(**common, contents=asked)
        return call.args, "".join([piece.text or "" async for piece in stream])


@pytest_asyncio.fixture(loop_scope="module")
async def bench(make_bench: Callable[[], AbstractAsyncContextManager[Bench]]) -> AsyncIterator[Bench]:
    async with make_bench() as made:
        yield made


@pytest.fixture(scope="module")
def private_key() -> str:
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    plain = serialization.NoEncryption()
    return made.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()


SIGNED = {"AWS_ACCESS_KEY_ID": "AKIAPLANTED", "AWS_SECRET_ACCESS_KEY": "planted-secret-1"}
BEARER = {"AWS_BEARER_TOKEN_BEDROCK": "bedrock-token-1"}


def of_bedrock(url: str, keys: dict[str, str]) -> dict[str, str]:
    return {**keys, "AWS_REGION": "eu-west-1", "BEDROCK_BASE_URL": url}


def of_vertex(url: str, folder: Path, private_key: str) -> dict[str, str]:
    """The variables of a service account, whose tokens come from the cloud as well."""
    account = {"type": "service_account", "project_id": "mine", "private_key_id": "1", "private_key": private_key}
    file = folder / "service-account.json"
    file.write_text(json.dumps({**account, "client_email": "agent@mine.example", "token_uri": f"{url}/token"}))
    place = {"GOOGLE_CLOUD_PROJECT": "mine", "GOOGLE_CLOUD_LOCATION": "us-east5"}
    return {**place, "GOOGLE_APPLICATION_CREDENTIALS": str(file), "VERTEX_BASE_URL": url}


def account_for(model: str, environ: dict[str, str]) -> Account:
    account = account_of(resolve_credentials(get_agent("opencode"), model, environ, Path("/nowhere")), model)
    assert account
    return account


async def admitted(bench: Bench, translator: Translator, model: str, environ: dict[str, str]) -> tuple[Pass, str]:
    gateway = await bench.gateway(Gateway(translator=translator))
    pass_ = gateway.admit(account_for(model, environ), bench.ledger)
    return pass_, await bench.open(pass_)


async def check_books(bench: Bench, pass_: Pass, *secrets: str) -> None:
    """Two answers, each with its tokens by kind and a price, and nothing private."""
    await pass_.close()
    made: list[Any] = bench.exchanges()
    assert [(one["status"], one["ended"], one["stream"]) for one in made] == [(200, "complete", True)] * 2
    for one in made:
        assert (one["tokens"]["input"], one["tokens"]["output"]) == (INPUT, OUTPUT)
        assert one["tokens"]["cached"] == CACHED
        assert one["cost"] > 0
    assert json.dumps(COMMAND)[1:-1] in json.dumps(made[0]["response"]["body"]).replace("\\\\", "\\")
    assert pass_.usage.cost == pytest.approx(sum(one["cost"] for one in made))
    written = bench.path.read_text()
    assert not [secret for secret in (pass_.token, *secrets) if secret in written]


CLAUDE = "anthropic.claude-sonnet-4-20250514-v1:0"
NOVA = "amazon.nova-lite-v1:0"


@pytest.mark.filterwarnings("ignore:Inheritance class")  # of Google's library, its own affair
@pytest.mark.parametrize(
    ("client", "model", "path", "keys"),
    [
        (of_anthropic, CLAUDE, "invoke-with-response-stream", SIGNED),
        (of_anthropic, NOVA, "converse-stream", BEARER),
        (of_chat, CLAUDE, "converse-stream", BEARER),
        (of_chat, NOVA, "converse-stream", SIGNED),
        (of_responses, CLAUDE, "converse-stream", SIGNED),
        (of_gemini, NOVA, "converse-stream", BEARER),
    ],
)
async def test_bedrock_streams_to_every_client(
    bench: Bench, translator: Translator, client: Ask, model: str, path: str, keys: dict[str, str]
) -> None:
    cloud = Cloud()
    url = await bench.provider(cloud.handle)
    pass_, root = await admitted(bench, translator, f"bedrock/{model}", of_bedrock(url, keys))
    given, words = await client(root, pass_.token, model, cloud.seen)
    assert (given, words) == ({"command": COMMAND}, DONE)
    assert [one[0] for one in cloud.asked] == [f"/model/{model}/{path}"] * 2
    shown = "Bearer bedrock-token-1" if keys is BEARER else "AWS4-HMAC-SHA256 Credential=AKIAPLANTED/"
    assert all(one[1].startswith(shown) for one in cloud.asked)
    await check_books(bench, pass_, *keys.values())


@pytest.mark.filterwarnings("ignore:Inheritance class")  # of Google's library, its own affair
@pytest.mark.parametrize(
    ("client", "model", "path"),
    [
        (of_anthropic, "gemini-2.5-flash", "google/models/gemini-2.5-flash:streamGenerateContent"),
        (of_chat, "gemini-2.5-flash", "google/models/gemini-2.5-flash:streamGenerateContent"),
        (of_responses, "gemini-2.5-flash", "google/models/gemini-2.5-flash:streamGenerateContent"),
        (of_gemini, "gemini-2.5-flash", "google/models/gemini-2.5-flash:streamGenerateContent"),
        (of_gemini, "claude-sonnet-4-6", "anthropic/models/claude-sonnet-4-6:streamRawPredict"),
        (of_anthropic, "claude-sonnet-4-6", "anthropic/models/claude-sonnet-4-6:streamRawPredict"),
        (of_chat, "claude-sonnet-4-6", "anthropic/models/claude-sonnet-4-6:streamRawPredict"),
    ],
)
async def test_vertex_streams_to_every_client(
    bench: Bench, translator: Translator, tmp_path: Path, private_key: str, client: Ask, model: str, path: str
) -> None:
    cloud = Cloud()
    url = await bench.provider(cloud.handle)
    pass_, root = await admitted(bench, translator, f"vertex/{model}", of_vertex(url, tmp_path, private_key))
    given, words = await client(root, pass_.token, model, cloud.seen)
    assert (given, words) == ({"command": COMMAND}, DONE)
    asked = [one for one in cloud.asked if one[0] != "/token"]
    assert cloud.asked[0] not in asked
    assert [re.sub("^/v1(beta1)?/", "", one[0]) for one in asked] == [
        f"projects/mine/locations/us-east5/publishers/{path}"
    ] * 2
    assert {one[1] for one in asked} == {f"Bearer {TOKEN}"}
    await check_books(bench, pass_, TOKEN)


ASKED: dict[str, tuple[str, Json]] = {
    "anthropic": ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}),
    "openai-chat": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "hi"}], "stream_options": {"include_usage": True}},
    ),
    "openai-responses": ("/v1/responses", {"input": [{"role": "user", "content": "hi"}]}),
    "gemini": (
        "/v1beta/models/{}:streamGenerateContent?alt=sse",
        {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    ),
}
"""A small streaming request of each dialect: its path and its body."""


@asynccontextmanager
async def asking(bench: Bench, root: str, pass_: Pass, dialect: str, model: str) -> AsyncIterator[Any]:
    path, body = ASKED[dialect]
    more = {} if dialect == "gemini" else {"model": model, "stream": True}
    headers = {"Authorization": f"Bearer {pass_.token}"}
    async with bench.http.post(f"{root}{path.format(model)}", json={**body, **more}, headers=headers) as reply:
        yield reply


def aws_exception(kind: str) -> bytes:
    headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return aws_message(headers, b'{"message": "Too many requests, please wait."}')


@pytest.mark.parametrize("dialect", ASKED)
@pytest.mark.parametrize("early", [True, False])
async def test_a_cloud_that_is_busy_before_it_streams_is_waited_for(
    bench: Bench, translator: Translator, dialect: str, early: bool
) -> None:
    cloud = Cloud()
    cloud.seen.set()
    cloud.fault = None if early else web.json_response({"message": "slow"}, status=429, headers={"Retry-After": "0"})
    cloud.exception, cloud.early = (aws_exception("throttlingException"), True) if early else (b"", False)
    url = await bench.provider(cloud.handle)
    pass_, root = await admitted(bench, translator, f"bedrock/{NOVA}", of_bedrock(url, BEARER))
    async with asking(bench, root, pass_, dialect, NOVA) as reply:
        assert (reply.status, DONE in await reply.text()) == (200, True)
    await pass_.close()
    (made,) = bench.exchanges()
    assert made["retries"] == [{"status": 429, "retry_after": None if early else 0.0}]
    assert len(cloud.asked) == 2


@pytest.mark.parametrize("dialect", ASKED)
async def test_a_stream_of_vertex_whose_account_is_refused_is_fatal(
    bench: Bench, translator: Translator, tmp_path: Path, private_key: str, dialect: str
) -> None:
    cloud = Cloud()
    cloud.fault = web.json_response({"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "no"}}, status=401)
    url = await bench.provider(cloud.handle)
    model = "gemini-2.5-flash"
    pass_, root = await admitted(bench, translator, f"vertex/{model}", of_vertex(url, tmp_path, private_key))
    async with asking(bench, root, pass_, dialect, model) as reply:
        assert reply.status == 401
    assert pass_.tripped is not None
    assert pass_.tripped.kind == "key"


@pytest.mark.parametrize("dialect", ASKED)
async def test_a_stream_that_fails_in_the_middle_says_so(bench: Bench, translator: Translator, dialect: str) -> None:
    cloud = Cloud()
    cloud.exception = aws_exception("modelStreamErrorException")
    url = await bench.provider(cloud.handle)
    pass_, root = await admitted(bench, translator, f"bedrock/{NOVA}", of_bedrock(url, BEARER))
    async with asking(bench, root, pass_, dialect, NOVA) as reply:
        said = await reply.text()
    assert reply.status == 200
    assert '"error"' in said.splitlines()[-2]
    assert "Traceback" not in said
    await pass_.close()
    (made,) = bench.exchanges()
    assert made["ended"] == "broken"


@pytest.mark.parametrize(("dialect", "model"), [("anthropic", CLAUDE), ("openai-chat", CLAUDE), ("gemini", NOVA)])
async def test_a_cloud_is_let_go_when_the_client_leaves(
    bench: Bench, translator: Translator, dialect: str, model: str
) -> None:
    cloud = Cloud()
    cloud.talkative = True
    url = await bench.provider(cloud.handle)
    pass_, root = await admitted(bench, translator, f"bedrock/{model}", of_bedrock(url, BEARER))
    async with asking(bench, root, pass_, dialect, model) as reply:
        while DONE.encode() not in await reply.content.readline():
            pass
        reply.close()
    async with asyncio.timeout(PATIENCE / 2):
        await cloud.gone.wait()
    await pass_.close()
    (made,) = bench.exchanges()
    assert made["ended"] == "left"


async def test_clouds_answer_whole_as_well(
    bench: Bench, translator: Translator, tmp_path: Path, private_key: str
) -> None:
    cloud = Cloud()
    url = await bench.provider(cloud.handle)
    for model, environ in (
        (f"bedrock/{NOVA}", of_bedrock(url, BEARER)),
        (f"bedrock/{CLAUDE}", of_bedrock(url, SIGNED)),
        ("vertex/gemini-2.5-flash", of_vertex(url, tmp_path, private_key)),
        ("vertex/claude-sonnet-4-6", of_vertex(url, tmp_path, private_key)),
    ):
        pass_, root = await admitted(bench, translator, model, environ)
        name = model.partition("/")[2]
        async with openai.AsyncOpenAI(base_url=f"{root}/v1", api_key=pass_.token) as client:
            said = await client.chat.completions.create(model=name, messages=[{"role": "user", "content": "hi"}])
        assert said.choices[0].message.content == DONE
        async with anthropic.AsyncAnthropic(base_url=root, api_key=pass_.token) as other:
            words = await other.messages.create(model=name, max_tokens=9, messages=[{"role": "user", "content": "hi"}])
        assert words.content[-1].text == DONE  # type: ignore[union-attr]
        await pass_.close()
    made: list[Any] = bench.exchanges()
    assert [(one["tokens"]["input"], one["tokens"]["cached"]) for one in made] == [(INPUT, CACHED)] * 8
    assert all(one["cost"] for one in made)


async def test_a_secret_that_a_cloud_repeats_is_not_passed_on(bench: Bench, translator: Translator) -> None:
    cloud = Cloud()
    secret = SIGNED["AWS_SECRET_ACCESS_KEY"]
    cloud.fault = web.json_response({"message": f"bad request with {secret}"}, status=400)
    url = await bench.provider(cloud.handle)
    pass_, root = await admitted(bench, translator, f"bedrock/{NOVA}", of_bedrock(url, SIGNED))
    async with asking(bench, root, pass_, "openai-chat", NOVA) as reply:
        said = await reply.text()
    assert reply.status == 400
    assert "bad request with ***" in said
    await pass_.close()
    assert secret not in bench.path.read_text()
