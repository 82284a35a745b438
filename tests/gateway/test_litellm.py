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

from benchflow.errors import ModelError
from benchflow.gateway.litellm_bridge.translator import LiteLLMTranslator
from benchflow.gateway.server import Gateway
from benchflow.testing.model import wire
from benchflow.testing.model_server import Fail, ModelServer, Run, Say, Step, Think

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from tests.gateway.conftest import Bench

    from benchflow.agent.spec import Dialect
    from benchflow.gateway.account import Account
    from benchflow.gateway.admission import Pass
    from benchflow.gateway.translate import Translator

SHELL: dict[str, Any] = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
SCRIPT: list[Step] = [Run("echo hi", text="I run it."), Say("All done.")]
USAGE = {"include_usage": True}
CLIENTS: list[Dialect] = ["anthropic", "openai-chat", "openai-responses", "gemini"]


@pytest_asyncio.fixture(loop_scope="module")
async def bench(make_bench: Callable[[], AbstractAsyncContextManager[Bench]]) -> AsyncIterator[Bench]:
    async with make_bench() as made:
        yield made


async def admitted(bench: Bench, translator: Translator, url: str, dialect: Dialect, **more: Any) -> tuple[Pass, str]:
    gateway = await bench.gateway(Gateway(translator=translator))
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


async def test_an_anthropic_agent_on_a_provider_of_openais_chat(bench: Bench, translator: Translator, key: str) -> None:
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


async def test_an_agent_of_openais_responses_on_anthropic(bench: Bench, translator: Translator, key: str) -> None:
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
    bench: Bench, translator: Translator, key: str, client: Dialect, provider: Dialect, stream: bool
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


ASKED: dict[Dialect, tuple[str, Any]] = {
    "anthropic": ("/v1/messages", {"model": "m-1", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}),
    "openai-chat": ("/v1/chat/completions", {"model": "m-1", "messages": [{"role": "user", "content": "hi"}]}),
    "openai-responses": ("/v1/responses", {"model": "m-1", "input": "hi"}),
    "gemini": ("/v1beta/models/m-1:generateContent", {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
URL = f"data:image/png;base64,{PIXEL}"
LOOKING: dict[Dialect, tuple[str, Any]] = {
    "anthropic": (
        "/v1/messages",
        {
            "max_tokens": 4000,
            "thinking": {"type": "enabled", "budget_tokens": 2000},
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "look"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                    ],
                }
            ],
        },
    ),
    "openai-chat": (
        "/v1/chat/completions",
        {
            "reasoning_effort": "low",
            "stream_options": USAGE,
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": URL}}],
                }
            ],
        },
    ),
    "openai-responses": (
        "/v1/responses",
        {
            "reasoning": {"effort": "low", "summary": "auto"},
            "input": [
                {
                    "role": "user",
                    "content": [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": URL}],
                }
            ],
        },
    ),
    "gemini": (
        "/v1beta/models/{}:streamGenerateContent?alt=sse",
        {
            "generationConfig": {"thinkingConfig": {"thinkingBudget": 1024, "includeThoughts": True}},
            "contents": [
                {
                    "role": "user",
                    "parts": [{"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": PIXEL}}],
                }
            ],
        },
    ),
}
"""A request with an image that asks for thoughts."""


@pytest.mark.parametrize("provider", ["anthropic", "openai-chat", "gemini"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_images_go_and_thoughts_come_between_all_dialects(
    bench: Bench, translator: Translator, client: Dialect, provider: Dialect
) -> None:
    if client == provider:
        return
    name = {"anthropic": "claude-sonnet-4-6", "openai-chat": "gpt-5.5", "gemini": "gemini-2.5-flash"}[provider]
    path, body = LOOKING[client]
    asked = body if client == "gemini" else {**body, "model": name, "stream": True}
    async with ModelServer([Think("Let me see."), Say("A pixel.")]) as model:
        pass_, root = await admitted(bench, translator, model.url, provider)
        headers = {"Authorization": f"Bearer {pass_.token}"}
        async with bench.http.post(f"{root}{path.format(name)}", json=asked, headers=headers) as reply:
            text = await reply.text()
        assert reply.status == 200, text
        (request,) = model.requests
    await pass_.close()
    assert PIXEL in request.text
    (exchange,) = bench.exchanges()
    answer = json.dumps(exchange["response"])
    assert "A pixel." in answer
    assert "Let me see." in answer
    assert exchange["cost"]


async def strict(request: web.BaseRequest) -> web.Response:
    """Anthropic as far as it insists: every call has an id of its own, and with thinking its thoughts in front."""
    body = await request.json()
    said = [message["content"] for message in body["messages"] if message["role"] == "assistant"]
    ids = [block["id"] for blocks in said for block in blocks if block["type"] == "tool_use"]
    enabled = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
    if len(ids) != len(set(ids)) or (enabled and said[-1][0]["type"] != "thinking"):
        return web.json_response({"type": "error", "error": {"type": "invalid_request_error"}}, status=400)
    usage = {"input_tokens": 10, "output_tokens": 3, "cache_creation_input_tokens": 7, "cache_read_input_tokens": 5}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6"}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    return web.json_response({**head, **ended, "content": [{"type": "text", "text": "ok"}], "usage": usage})


def chat_history() -> Any:
    def call(number: int) -> Any:
        return {"id": f"c{number}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}

    turns = [
        [
            {"role": "assistant", "content": None, "tool_calls": [call(n)]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": "x"},
        ]
        for n in range(2)
    ]
    tools = [{"type": "function", "function": {"name": "bash", "parameters": SHELL}}]
    return {"messages": [{"role": "user", "content": "hi"}, *turns[0], *turns[1]], "tools": tools}


def responses_history() -> Any:
    turns = [
        item
        for n in range(2)
        for item in (
            {"type": "reasoning", "id": f"rs_{n}", "summary": [], "encrypted_content": "x"},
            {"type": "function_call", "call_id": f"c{n}", "name": "bash", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{n}", "output": "x"},
        )
    ]
    tools = [{"type": "function", "name": "bash", "parameters": SHELL}]
    return {"input": [{"role": "user", "content": "hi"}, *turns], "tools": tools}


def gemini_history() -> Any:
    turns = [
        {"role": "model", "parts": [{"functionCall": {"name": "bash", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "bash", "response": {"output": "x"}}}]},
    ]
    tools = [{"functionDeclarations": [{"name": "bash", "parameters": SHELL}]}]
    return {"contents": [{"role": "user", "parts": [{"text": "hi"}]}, *turns, *turns], "tools": tools}


HISTORIES: list[tuple[str, Any]] = [
    ("/v1/chat/completions", {**chat_history(), "model": "claude-sonnet-4-6", "reasoning_effort": "low"}),
    ("/v1/responses", {**responses_history(), "model": "claude-sonnet-4-6", "reasoning": {"effort": "low"}}),
    (
        "/v1beta/models/claude-sonnet-4-6:generateContent",
        {**gemini_history(), "generationConfig": {"thinkingConfig": {"thinkingBudget": 1024}}},
    ),
]


@pytest.mark.parametrize(("path", "body"), HISTORIES)
async def test_an_agent_that_thinks_can_go_on_calling_tools_on_anthropic(
    bench: Bench, translator: Translator, path: str, body: Any
) -> None:
    pass_, root = await admitted(bench, translator, await bench.provider(strict), "anthropic")
    headers = {"Authorization": f"Bearer {pass_.token}"}
    async with bench.http.post(f"{root}{path}", json=body, headers=headers) as reply:
        assert reply.status == 200, await reply.text()
    (exchange,) = bench.exchanges()
    tokens: Any = exchange["tokens"]
    assert (tokens["input"], tokens["cached"], tokens["output"]) == (22, 5, 3)
    if not path.startswith("/v1beta"):  # Gemini has no word for what was written to a cache
        assert tokens["cache_write"] == 7


async def asked_across(bench: Bench, translator: Translator, client: Dialect, *answers: Fail | Say) -> tuple[Pass, int]:
    """A client asks a provider of another dialect, which answers so; its pass, and the status that the client saw."""
    provider: Dialect = "anthropic" if client == "openai-chat" else "openai-chat"
    path, body = ASKED[client]
    async with ModelServer(list(answers)) as model:
        pass_, root = await admitted(bench, translator, model.url, provider)
        headers = {"Authorization": f"Bearer {pass_.token}"}
        async with bench.http.post(f"{root}{path}", json=body, headers=headers) as reply:
            return pass_, reply.status


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_busy_provider_is_waited_for_also_behind_a_translator(
    bench: Bench, translator: Translator, client: Dialect
) -> None:
    _, status = await asked_across(bench, translator, client, Fail(429, retry_after=0.01), Say("there"))
    assert status == 200
    assert [one["retries"] for one in bench.exchanges()] == [[{"status": 429, "retry_after": 0.01}]]


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_dead_key_is_fatal_also_behind_a_translator(
    bench: Bench, translator: Translator, client: Dialect
) -> None:
    pass_, status = await asked_across(bench, translator, client, Fail(401), Say("never"))
    assert status == 401
    assert pass_.tripped is not None
    assert pass_.tripped.kind == "key"


async def test_an_agent_cannot_make_the_translator_fetch_anything(bench: Bench, translator: Translator) -> None:
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


async def test_the_translator_tells_a_provider_nothing_that_cannot_prove_who_it_is(
    bench: Bench, translator: Translator, impostor: AbstractAsyncContextManager[tuple[str, list[bytes]]]
) -> None:
    path, body = ASKED["anthropic"]
    async with impostor as (url, heard):
        pass_, root = await admitted(bench, translator, url, "openai-chat")
        async with bench.http.post(f"{root}{path}", json=body, headers={"x-api-key": pass_.token}) as reply:
            assert reply.status >= 500
    assert heard == []


def check_private(pid: int, folder: Path, key: str) -> None:
    seen = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    assert key.encode() not in seen
    assert folder.stat().st_mode & 0o077 == 0


def check_gone(pid: int, folder: Path) -> None:
    assert not Path(f"/proc/{pid}").exists()
    assert not folder.exists()


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
