"""Agents of one dialect on providers of another, translated by LiteLLM in its own process."""

from __future__ import annotations

import json
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
from benchflow.errors import ModelError
from benchflow.gateway.account import account_of
from benchflow.gateway.litellm_bridge.translator import LiteLLMTranslator
from benchflow.gateway.server import Gateway
from benchflow.testing.model import wire
from benchflow.testing.model_server import Fail, ModelServer, Run, Say, Step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from tests.gateway.conftest import Bench

    from benchflow.agent.spec import Dialect
    from benchflow.gateway.account import Account
    from benchflow.gateway.admission import Pass

SHELL: dict[str, Any] = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
SCRIPT: list[Step] = [Run("echo hi", text="I run it."), Say("All done.")]
USAGE = {"include_usage": True}
CLIENTS: list[Dialect] = ["anthropic", "openai-chat", "openai-responses", "gemini"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def translator() -> AsyncIterator[LiteLLMTranslator]:
    """One for all tests here, which therefore share a loop: it takes long to start."""
    made = LiteLLMTranslator()
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def bench(make_bench: Callable[[], AbstractAsyncContextManager[Bench]]) -> AsyncIterator[Bench]:
    async with make_bench() as made:
        yield made


class Lent:
    """A translator that a gateway uses and does not close."""

    def __init__(self, translator: LiteLLMTranslator) -> None:
        self.missing = translator.missing
        self.upstream = translator.upstream

    async def close(self) -> None:
        pass


async def admitted(
    bench: Bench, translator: LiteLLMTranslator, url: str, dialect: Dialect, **more: Any
) -> tuple[Pass, str]:
    gateway = await bench.gateway(Gateway(translator=Lent(translator)))
    pass_ = gateway.admit(bench.account(url, dialect, **more), bench.ledger)
    return pass_, await bench.open(pass_)


def books(bench: Bench, pass_: Pass, key: str, *, generated: int) -> list[Any]:
    made: list[Any] = bench.exchanges()
    assert [(one["status"], one["ended"]) for one in made] == [(200, "complete")] * generated
    for one in made:
        assert (one["tokens"]["input"], one["tokens"]["output"]) == (wire.INPUT_TOKENS, wire.OUTPUT_TOKENS)
    assert pass_.usage.requests == generated
    assert key not in bench.path.read_text()
    return made


pytestmark = [pytest.mark.needs("litellm"), pytest.mark.asyncio(loop_scope="module")]


async def test_an_anthropic_agent_on_a_provider_of_openais_chat(
    bench: Bench, translator: LiteLLMTranslator, key: str
) -> None:
    async with ModelServer(SCRIPT) as model:
        pass_, root = await admitted(bench, translator, model.url, "openai-chat")
        tools: Any = [{"name": "bash", "description": "a shell", "input_schema": SHELL}]
        messages: Any = [{"role": "user", "content": "hi"}]
        async with anthropic.AsyncAnthropic(base_url=root, api_key=pass_.token) as client:
            common: Any = {"model": "gpt-5.5", "max_tokens": 99, "tools": tools}
            first = await client.messages.create(**common, messages=messages)
            assert first.stop_reason == "tool_use"
            (call,) = [block for block in first.content if block.type == "tool_use"]
            assert call.input == {"command": "echo hi"}
            messages += [
                {"role": "assistant", "content": [block.model_dump() for block in first.content]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "hi"}]},
            ]
            async with client.messages.stream(**common, messages=messages) as stream:
                assert (await stream.get_final_message()).content[-1].text == "All done."  # type: ignore[union-attr]
        assert [request.path for request in model.requests] == ["/v1/chat/completions"] * 2
        assert {request.headers["Authorization"] for request in model.requests} == {f"Bearer {key}"}
    made = books(bench, pass_, key, generated=2)
    assert [one["dialect"] for one in made] == ["anthropic"] * 2
    assert all(one["cost"] for one in made)


async def test_an_agent_of_openais_responses_on_anthropic(
    bench: Bench, translator: LiteLLMTranslator, key: str
) -> None:
    async with ModelServer(SCRIPT) as model:
        pass_, root = await admitted(bench, translator, model.url, "anthropic")
        tools: Any = [
            {"type": "function", "name": "bash", "parameters": SHELL, "strict": False},
            {"type": "custom", "name": "apply_patch", "format": {"type": "text"}},
            {"type": "web_search"},
        ]
        common: Any = {"model": "claude-sonnet-4-6", "tools": tools, "store": False, "instructions": "Be brief."}
        asked: Any = [{"role": "user", "content": "hi"}]
        async with openai.AsyncOpenAI(base_url=f"{root}/v1", api_key=pass_.token) as client:
            async with client.responses.stream(**common, input=asked) as stream:
                first = await stream.get_final_response()
            (call,) = [item for item in first.output if item.type == "function_call"]
            assert json.loads(call.arguments) == {"command": "echo hi"}
            asked += [
                {"type": "function_call", "call_id": call.call_id, "name": "bash", "arguments": call.arguments},
                {"type": "function_call_output", "call_id": call.call_id, "output": "hi"},
            ]
            second = await client.responses.create(**common, input=asked)
            assert second.output_text == "All done."
        assert [request.path for request in model.requests] == ["/v1/messages"] * 2
        assert {request.headers["x-api-key"] for request in model.requests} == {key}
        assert "Be brief." in model.requests[0].text
    books(bench, pass_, key, generated=2)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("provider", ["anthropic", "openai-chat", "gemini"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_every_dialect_on_every_other(
    bench: Bench, translator: LiteLLMTranslator, key: str, client: Dialect, provider: Dialect, stream: bool
) -> None:
    if client == provider:
        return
    tool = {"name": "bash", "parameters": SHELL}
    said = [{"role": "user", "content": "hi"}]
    bodies: dict[Dialect, tuple[str, Any]] = {
        "anthropic": (
            "/v1/messages",
            {"max_tokens": 9, "messages": said, "tools": [{"name": "bash", "input_schema": SHELL}]},
        ),
        "openai-chat": (
            "/v1/chat/completions",
            {
                "messages": said,
                "tools": [{"type": "function", "function": tool}],
                "stream_options": {"include_usage": True},
            },
        ),
        "openai-responses": ("/v1/responses", {"input": said, "tools": [{"type": "function", **tool}]}),
        "gemini": (
            f"/v1beta/models/m-1:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}",
            {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "tools": [{"functionDeclarations": [tool]}]},
        ),
    }
    path, body = bodies[client]
    asked = body if client == "gemini" else {**body, "model": "m-1", "stream": stream}
    async with ModelServer(SCRIPT) as model:
        pass_, root = await admitted(bench, translator, model.url, provider)
        headers = {"Authorization": f"Bearer {pass_.token}"}
        async with bench.http.post(f"{root}{path}", json=asked, headers=headers) as reply:
            text = await reply.text()
            assert reply.status == 200, text
        assert len(model.requests) == 1
    (exchange,) = bench.exchanges()
    assert exchange["ended"] == "complete"
    document = json.dumps(exchange["response"])
    assert "echo hi" in document
    assert "I run it." in document
    tokens: Any = exchange["tokens"]
    assert tokens["input"] == wire.INPUT_TOKENS


async def test_a_busy_provider_is_waited_for_also_behind_a_translator(
    bench: Bench, translator: LiteLLMTranslator
) -> None:
    async with ModelServer([Fail(429, retry_after=0.01), Say("there")]) as model:
        pass_, root = await admitted(bench, translator, model.url, "openai-chat")
        body = {"model": "m-1", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        async with bench.http.post(f"{root}/v1/messages", json=body, headers={"x-api-key": pass_.token}) as reply:
            assert reply.status == 200
    assert [one["retries"][0]["status"] for one in bench.exchanges()] == [429]  # type: ignore[index]


async def test_a_dead_key_is_fatal_also_behind_a_translator(bench: Bench, translator: LiteLLMTranslator) -> None:
    async with ModelServer([Fail(401), Say("never")]) as model:
        pass_, root = await admitted(bench, translator, model.url, "anthropic")
        body = {"model": "m-1", "messages": [{"role": "user", "content": "hi"}]}
        headers = {"Authorization": f"Bearer {pass_.token}"}
        async with bench.http.post(f"{root}/v1/chat/completions", json=body, headers=headers) as reply:
            assert reply.status == 401
    assert pass_.tripped is not None
    assert pass_.tripped.kind == "key"


async def test_an_agent_cannot_make_the_translator_fetch_anything(bench: Bench, translator: LiteLLMTranslator) -> None:
    fetched: list[str] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        fetched.append(request.path)
        return web.Response(body=b"\x89PNG", content_type="image/png")

    elsewhere = await bench.provider(handler, "127.0.0.2")
    async with ModelServer([Say("ok")]) as model:
        pass_, root = await admitted(bench, translator, model.url, "anthropic")
        headers = {"Authorization": f"Bearer {pass_.token}"}
        image = {"type": "image_url", "image_url": {"url": f"{elsewhere}/secret.png"}}
        messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}, image]}]
        params: list[dict[str, Any]] = [
            {"messages": messages},
            {"messages": [{"role": "user", "content": "hi"}], "api_base": elsewhere, "base_url": elsewhere},
            {
                "messages": [{"role": "user", "content": "hi"}],
                "fallbacks": [{"model": "openai/x", "api_base": elsewhere}],
            },
        ]
        for more in params:
            async with bench.http.post(
                f"{root}/v1/chat/completions", json={"model": "m-1", **more}, headers=headers
            ) as reply:
                await reply.read()
    assert fetched == []


def check_private(pid: int, folder: Path, key: str) -> None:
    seen = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    assert key.encode() not in seen
    assert folder.stat().st_mode & 0o077 == 0


def check_gone(pid: int, folder: Path) -> None:
    assert not Path(f"/proc/{pid}").exists()
    assert not folder.exists()


class Cloud:
    """A double of Bedrock's Converse, of Vertex and of Google's token service: keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.text()
        self.asked.append((request.path, request.headers.get("Authorization", ""), body))
        if request.path == "/token":
            return web.json_response({"access_token": "ya29.short-lived", "expires_in": 3600, "token_type": "Bearer"})
        if request.path.endswith("/converse"):
            said = {"output": {"message": {"role": "assistant", "content": [{"text": "From the cloud."}]}}}
            usage = {"inputTokens": 1000, "outputTokens": 18, "totalTokens": 1018}
            return web.json_response({**said, "stopReason": "end_turn", "usage": usage, "metrics": {"latencyMs": 1}})
        content = {"role": "model", "parts": [{"text": "From the cloud."}]}
        usage = {"promptTokenCount": 1000, "candidatesTokenCount": 18, "totalTokenCount": 1018}
        return web.json_response({"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": usage})


async def ask_cloud(bench: Bench, translator: LiteLLMTranslator, model: str, environ: dict[str, str]) -> Pass:
    """Ask in the dialect of OpenAI's chat, on the account that the variables give."""
    found = resolve_credentials(get_agent("opencode"), model, environ, Path("/nowhere"))
    account = account_of(found, model)
    assert account
    gateway = await bench.gateway(Gateway(translator=Lent(translator)))
    pass_ = gateway.admit(account, bench.ledger)
    async with openai.AsyncOpenAI(base_url=f"{await bench.open(pass_)}/v1", api_key=pass_.token) as client:
        answer = await client.chat.completions.create(
            model=model.partition("/")[2], messages=[{"role": "user", "content": "hi"}]
        )
    assert answer.choices[0].message.content == "From the cloud."
    return pass_


@pytest.mark.parametrize(
    ("keys", "authorization"),
    [
        ({"AWS_BEARER_TOKEN_BEDROCK": "bedrock-token-1"}, "Bearer bedrock-token-1"),
        (
            {"AWS_ACCESS_KEY_ID": "AKIAPLANTED", "AWS_SECRET_ACCESS_KEY": "planted-secret-1"},
            "AWS4-HMAC-SHA256 Credential=AKIAPLANTED/",
        ),
    ],
)
async def test_bedrock_is_asked_with_a_token_or_with_a_signature(
    bench: Bench, translator: LiteLLMTranslator, keys: dict[str, str], authorization: str
) -> None:
    cloud = Cloud()
    environ = {**keys, "AWS_REGION": "eu-west-1", "BEDROCK_BASE_URL": await bench.provider(cloud.handle)}
    await ask_cloud(bench, translator, "bedrock/amazon.nova-lite-v1:0", environ)
    ((path, credential, body),) = cloud.asked
    assert path == "/model/amazon.nova-lite-v1:0/converse"
    assert credential.startswith(authorization)
    assert "hi" in body
    (made,) = bench.exchanges()
    assert made["tokens"].items() >= {"input": 1000, "output": 18}.items()  # type: ignore[attr-defined]
    text = bench.path.read_text()
    assert not [value for value in keys.values() if value in text]


async def test_vertex_is_asked_on_a_service_account(
    bench: Bench, translator: LiteLLMTranslator, tmp_path: Path
) -> None:
    cloud = Cloud()
    url = await bench.provider(cloud.handle)
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "project_id": "mine",
        "private_key_id": "1",
        "private_key": private.decode(),
        "client_email": "agent@mine.example",
        "token_uri": f"{url}/token",
    }
    file = tmp_path / "service-account.json"
    file.write_text(json.dumps(account))
    environ = {
        "GOOGLE_APPLICATION_CREDENTIALS": str(file),
        "GOOGLE_CLOUD_PROJECT": "mine",
        "GOOGLE_CLOUD_LOCATION": "us-east5",
        "VERTEX_BASE_URL": url,
    }
    await ask_cloud(bench, translator, "vertex/gemini-2.5-flash", environ)
    (token_path, _, _), (path, credential, _) = cloud.asked
    assert token_path == "/token"
    assert path.endswith("/projects/mine/locations/us-east5/publishers/google/models/gemini-2.5-flash:generateContent")
    assert credential == "Bearer ya29.short-lived"
    assert "ya29.short-lived" not in bench.path.read_text()


async def test_no_key_is_in_the_process_and_it_ends_with_its_gateway(
    bench: Bench, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    own = LiteLLMTranslator()
    async with ModelServer([Say("ok")]) as model:
        async with Gateway(translator=own) as gateway:
            pass_ = gateway.admit(bench.account(model.url, "openai-chat"), bench.ledger)
            root = await bench.open(pass_)
            body = {"model": "m-1", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
            async with bench.http.post(f"{root}/v1/messages", json=body, headers={"x-api-key": pass_.token}) as reply:
                assert reply.status == 200
            assert own._process is not None
            assert own._folder is not None
            pid, folder = own._process.pid, Path(own._folder.name)
            check_private(pid, folder, key)
        check_gone(pid, folder)


async def test_a_translator_that_cannot_start_says_why(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchflow.gateway.litellm_bridge.translator.sys.executable", "/bin/false")
    account: Account = bench.account("http://127.0.0.1:9", "openai-chat")
    own = LiteLLMTranslator()
    with pytest.raises(ModelError, match="does not start"):
        await own.upstream(account)
    await own.close()
