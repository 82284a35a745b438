"""The providers' own client libraries through the gateway: they must not notice it."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from benchflow.testing.model import wire
from benchflow.testing.model_server import ModelServer, Run, Say, Think

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the library's own source has some
    from google import genai

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.gateway.conftest import Bench

    from benchflow.gateway.admission import Pass

TEXT = "Hello from the model, Grüße \U0001f600"
PRICED = {"anthropic": "claude-sonnet-4-6", "openai": "gpt-5.5", "gemini": "gemini-2.5-flash"}
SHELL: dict[str, Any] = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
}


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer([Think("Let me see."), Say(TEXT)]) as server:
        yield server


@pytest.fixture
async def tooled() -> AsyncIterator[ModelServer]:
    async with ModelServer([Run("echo hi", text="I run it."), Say(TEXT)]) as server:
        yield server


def check_books(bench: Bench, pass_: Pass, key: str, *, generated: int) -> None:
    """Every exchange is in the ledger with tokens and a price, and nothing private is."""
    made = [one for one in bench.exchanges() if one["operation"] == "generate"]
    assert len(made) == generated == pass_.usage.requests
    for one in made:
        assert (one["status"], one["ended"]) == (200, "complete")
        assert isinstance(one["tokens"], dict)
        assert one["tokens"]["input"] == wire.INPUT_TOKENS
        assert one["tokens"]["cached"] == wire.CACHED_TOKENS
        assert one["cost"]
    assert pass_.usage.cost == pytest.approx(sum(float(str(one["cost"])) for one in made))
    assert pass_.usage.tokens.input == generated * wire.INPUT_TOKENS
    written = bench.path.read_text()
    assert key not in written
    assert pass_.token not in written


async def test_anthropic(bench: Bench, model: ModelServer, key: str) -> None:
    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(model.url, "anthropic"), bench.ledger)
    name = PRICED["anthropic"]
    asked: Any = {"model": name, "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}]}
    async with anthropic.AsyncAnthropic(base_url=await bench.open(pass_), api_key=pass_.token) as client:
        whole = await client.messages.create(**asked)
        assert whole.content[-1].text == TEXT
        async with client.messages.stream(**asked) as stream:
            assert "".join([piece async for piece in stream.text_stream]) == TEXT
        beta = await client.beta.messages.create(**asked)
        assert beta.usage.output_tokens == wire.OUTPUT_TOKENS
        counted = await client.messages.count_tokens(model=name, messages=asked["messages"])
        assert counted.input_tokens == wire.INPUT_TOKENS
        assert name in [one.id async for one in client.models.list()]
    assert {request.headers["x-api-key"] for request in model.requests} == {key}
    check_books(bench, pass_, key, generated=3)


async def test_anthropic_with_tools_images_and_thinking(bench: Bench, tooled: ModelServer, key: str) -> None:
    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(tooled.url, "anthropic"), bench.ledger)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    asked: Any = {
        "model": PRICED["anthropic"],
        "max_tokens": 4000,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "tools": [{"name": "bash", "input_schema": SHELL}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, image]}],
    }
    async with (
        anthropic.AsyncAnthropic(base_url=await bench.open(pass_), api_key=None, auth_token=pass_.token) as client,
        client.messages.stream(**asked) as stream,
    ):
        said = await stream.get_final_message()
    assert said.stop_reason == "tool_use"
    assert said.content[-1].input == {"command": "echo hi"}  # type: ignore[union-attr]
    assert "iVBORw0KGgo=" in tooled.requests[0].text
    assert "authorization" not in {name.lower() for name in tooled.requests[0].headers}
    check_books(bench, pass_, key, generated=1)
    (exchange,) = bench.exchanges()
    recorded: Any = exchange["response"]
    assert recorded["body"]["content"][-1]["input"] == {"command": "echo hi"}


async def test_openai_chat(bench: Bench, model: ModelServer, key: str) -> None:
    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(model.url, "openai-chat"), bench.ledger)
    asked: Any = {"model": PRICED["openai"], "messages": [{"role": "user", "content": "hi"}]}
    async with openai.AsyncOpenAI(base_url=f"{await bench.open(pass_)}/v1", api_key=pass_.token) as client:
        whole = await client.chat.completions.create(**asked)
        assert whole.choices[0].message.content == TEXT
        stream = await client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        pieces = [one.choices[0].delta.content or "" async for one in stream if one.choices]
        assert "".join(pieces) == TEXT
        assert PRICED["openai"] in [one.id async for one in client.models.list()]
    assert {request.headers["Authorization"] for request in model.requests} == {f"Bearer {key}"}
    check_books(bench, pass_, key, generated=2)


async def test_openai_chat_without_usage_is_unknown_and_not_free(bench: Bench, model: ModelServer) -> None:
    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(model.url, "openai-chat"), bench.ledger)
    asked: Any = {"model": PRICED["openai"], "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with openai.AsyncOpenAI(base_url=f"{await bench.open(pass_)}/v1", api_key=pass_.token) as client:
        async for _ in await client.chat.completions.create(**asked):
            pass
    (exchange,) = bench.exchanges()
    assert (exchange["tokens"], exchange["cost"], exchange["ended"]) == (None, None, "complete")
    assert (pass_.usage.unmetered, pass_.usage.cost) == (1, None)
    assert b"include_usage" not in json.dumps(model.requests[0].body).encode()


async def test_openai_responses(bench: Bench, model: ModelServer, key: str) -> None:
    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(model.url, "openai-responses", "openai-chat"), bench.ledger)
    async with openai.AsyncOpenAI(base_url=f"{await bench.open(pass_)}/v1", api_key=pass_.token) as client:
        whole = await client.responses.create(model=PRICED["openai"], input="hi")
        assert whole.output_text == TEXT
        async with client.responses.stream(model=PRICED["openai"], input="hi") as stream:
            kinds = [event.type async for event in stream]
            assert (await stream.get_final_response()).output_text == TEXT
        assert kinds[-1] == "response.completed"
    check_books(bench, pass_, key, generated=2)


@pytest.mark.filterwarnings("ignore:Inheritance class")  # the library's own affair
async def test_gemini(bench: Bench, model: ModelServer, key: str) -> None:
    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(model.url, "gemini"), bench.ledger)
    options = genai.types.HttpOptions(base_url=await bench.open(pass_))
    name = PRICED["gemini"]
    async with genai.Client(api_key=pass_.token, http_options=options).aio as client:
        whole = await client.models.generate_content(model=name, contents="hi")
        assert whole.text == TEXT
        stream = await client.models.generate_content_stream(model=name, contents="hi")
        assert "".join([piece.text or "" async for piece in stream]) == TEXT
        counted = await client.models.count_tokens(model=name, contents="hi")
        assert counted.total_tokens == wire.INPUT_TOKENS
    assert {request.headers["x-goog-api-key"] for request in model.requests} == {key}
    check_books(bench, pass_, key, generated=2)


async def test_geminis_key_in_the_query_is_a_token_too_and_does_not_travel(bench: Bench, model: ModelServer) -> None:
    gateway = await bench.gateway()
    pass_ = gateway.admit(bench.account(model.url, "gemini"), bench.ledger)
    url = f"{await bench.open(pass_)}/v1beta/models/{PRICED['gemini']}:streamGenerateContent?key={pass_.token}"
    asked = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    async with bench.http.post(url, json=asked) as reply:
        assert isinstance(await reply.json(), list)
    assert model.requests[0].path.endswith(":streamGenerateContent")
    (exchange,) = bench.exchanges()
    assert isinstance(exchange["tokens"], dict)
