"""Lists of models and counts of tokens for clients whose dialect the provider does not speak."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from benchflow.gateway.courtesy import IMAGE_TOKENS, estimate
from benchflow.gateway.litellm_bridge.translator import LiteLLMTranslator
from benchflow.gateway.server import Gateway

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the library's own source has some
    from google import genai

if TYPE_CHECKING:
    from tests.gateway.conftest import Bench

    from benchflow.agent.spec import Dialect
    from benchflow.gateway.admission import Pass

NOWHERE = "http://127.0.0.1:9"


async def opened(bench: Bench, dialect: Dialect) -> tuple[Pass, str]:
    """A pass on a provider that is asked nothing, with a translator that is not started."""
    gateway = await bench.gateway(Gateway(translator=LiteLLMTranslator()))
    account = bench.account(NOWHERE, dialect, model="m-1", models=("m-1",))
    pass_ = gateway.admit(account, bench.ledger)
    return pass_, await bench.open(pass_)


async def test_of_anthropic_on_another_provider(bench: Bench) -> None:
    pass_, root = await opened(bench, "openai-chat")
    async with anthropic.AsyncAnthropic(base_url=root, api_key=pass_.token, max_retries=0) as client:
        said: Any = [{"role": "user", "content": "x" * 4000}]
        counted = await client.messages.count_tokens(model="m-1", messages=said)
        assert 1000 <= counted.input_tokens < 1100
        assert [one.id async for one in client.models.list()] == ["m-1"]
        assert (await client.models.retrieve("m-1")).id == "m-1"
        with pytest.raises(anthropic.NotFoundError):
            await client.models.retrieve("m-2")
    assert [one["operation"] for one in bench.exchanges()] == ["count", "models", "models", "models"]
    assert pass_.usage.requests == 0


async def test_of_openai_on_another_provider(bench: Bench) -> None:
    pass_, root = await opened(bench, "anthropic")
    async with openai.AsyncOpenAI(base_url=f"{root}/v1", api_key=pass_.token, max_retries=0) as client:
        counted = await client.responses.input_tokens.count(model="m-1", input="x" * 4000)
        assert 1000 <= counted.input_tokens < 1100


@pytest.mark.filterwarnings("ignore:Inheritance class")  # the library's own affair
async def test_of_gemini_on_another_provider(bench: Bench) -> None:
    pass_, root = await opened(bench, "openai-chat")
    options = genai.types.HttpOptions(base_url=root)
    async with genai.Client(api_key=pass_.token, http_options=options).aio as client:
        counted = await client.models.count_tokens(model="m-1", contents="x" * 4000)
        assert 1000 <= (counted.total_tokens or 0) < 1100
        assert (await client.models.get(model="m-1")).name == "models/m-1"


def test_an_image_counts_the_same_whatever_its_size() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 1_000_000}}
    assert IMAGE_TOKENS < estimate([image]) < 2 * IMAGE_TOKENS
