"""What a model's name tells about who serves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchflow.agent.catalog import get_agent
from benchflow.agent.credentials import Credentials, resolve_credentials
from benchflow.agent.providers import PROVIDERS, get_provider, infer_provider, provider_url, split_model
from benchflow.errors import ConfigError


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ("openai/gpt-5.5", ("openai", "gpt-5.5")),
        ("google/gemini-2.5-pro", ("gemini", "gemini-2.5-pro")),
        ("openrouter/meta/llama", ("openrouter", "meta/llama")),
        ("gpt-5.5", ("", "gpt-5.5")),
        (None, ("", "")),
    ],
)
def test_split(model: str | None, parts: tuple[str, str]) -> None:
    assert split_model(model) == parts


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("claude-haiku-4-5", "anthropic"),
        ("opus", "anthropic"),
        ("gpt-5.5", "openai"),
        ("o3", "openai"),
        ("o4-mini", "openai"),
        ("gemini-2.5-flash", "gemini"),
        ("devstral-medium", "mistral"),
        ("grok-4", "xai"),
        ("DeepSeek-V4", "deepseek"),
        ("kimi-k3", "kimi"),
        ("anything/claude-x", "anything"),
        ("oracle-1", ""),
        ("", ""),
    ],
)
def test_infer(model: str, provider: str) -> None:
    assert infer_provider(model) == provider


def test_the_convention() -> None:
    provider = get_provider("my-host.v2")
    assert provider.keys == ("MY_HOST_V2_API_KEY",)
    assert provider.base_url_var == "MY_HOST_V2_BASE_URL"
    assert provider_url(provider, "") == ""
    assert provider_url(provider, " http://h/v1/ ") == "http://h/v1"


AZURE = {"AZURE_API_KEY": "k1", "AZURE_API_ENDPOINT": "https://mine.openai.azure.com/"}
OPENAI = ("openai-responses", "openai-chat")
CHAT = ("openai-chat",)
ROWS: dict[str, tuple[dict[str, str], str, tuple[str, ...]]] = {
    "anthropic": ({"ANTHROPIC_API_KEY": "k1"}, "https://api.anthropic.com", ("anthropic",)),
    "openai": ({"OPENAI_API_KEY": "k1"}, "https://api.openai.com/v1", OPENAI),
    "gemini": ({"GEMINI_API_KEY": "k1"}, "https://generativelanguage.googleapis.com", ("gemini",)),
    "google": ({"GOOGLE_API_KEY": "k1"}, "https://generativelanguage.googleapis.com", ("gemini",)),
    "azure-foundry-openai": (AZURE, "https://mine.openai.azure.com/openai/v1", OPENAI),
    "azure-foundry-anthropic": (AZURE, "https://mine.services.ai.azure.com/anthropic", ("anthropic",)),
    "bedrock": (
        {"AWS_BEARER_TOKEN_BEDROCK": "k1", "AWS_REGION": "eu-west-1"},
        "https://bedrock-runtime.eu-west-1.amazonaws.com",
        (),
    ),
    "vertex": (
        {
            "GOOGLE_APPLICATION_CREDENTIALS": "k1",
            "GOOGLE_CLOUD_PROJECT": "p",
            "GOOGLE_CLOUD_LOCATION": "us-east5",
        },
        "https://us-east5-aiplatform.googleapis.com",
        (),
    ),
    "deepseek": ({"DEEPSEEK_API_KEY": "k1", "DEEPSEEK_BASE_URL": "https://d/v1"}, "https://d/v1", CHAT),
    "zai": ({"ZAI_API_KEY": "k1"}, "https://api.z.ai/api/paas/v4", CHAT),
    "glm": ({"GLM_API_KEY": "k1", "GLM_BASE_URL": "https://g/v4"}, "https://g/v4", CHAT),
    "kimi": ({"KIMI_API_KEY": "k1", "KIMI_BASE_URL": "https://k/v1"}, "https://k/v1", CHAT),
    "minimax": ({"MINIMAX_API_KEY": "k1", "MINIMAX_BASE_URL": "https://m/v1"}, "https://m/v1", CHAT),
    "hunyuan": ({"HUNYUAN_API_KEY": "k1", "HUNYUAN_BASE_URL": "https://h/v1"}, "https://h/v1", CHAT),
    "qwen": ({"QWEN_API_KEY": "k1", "QWEN_BASE_URL": "https://q/v1"}, "https://q/v1", CHAT),
    "openrouter": ({"OPENROUTER_API_KEY": "k1"}, "https://openrouter.ai/api/v1", CHAT),
    "together": ({"TOGETHER_API_KEY": "k1"}, "https://api.together.xyz/v1", CHAT),
    "groq": ({"GROQ_API_KEY": "k1"}, "https://api.groq.com/openai/v1", CHAT),
    "mistral": ({"MISTRAL_API_KEY": "k1"}, "https://api.mistral.ai/v1", CHAT),
    "xai": ({"XAI_API_KEY": "k1"}, "https://api.x.ai/v1", CHAT),
    "vllm": ({"VLLM_API_KEY": "k1", "VLLM_BASE_URL": "http://gpu:8000/v1"}, "http://gpu:8000/v1", CHAT),
    "ollama": ({"OLLAMA_API_KEY": "k1"}, "http://127.0.0.1:11434/v1", CHAT),
    "somebody-new": ({"SOMEBODY_NEW_API_KEY": "k1", "SOMEBODY_NEW_BASE_URL": "https://n/v1"}, "https://n/v1", CHAT),
}
"""Prefix -> the variables that it needs, where it is then, and what it speaks."""


def resolve(prefix: str, environ: dict[str, str]) -> Credentials:
    return resolve_credentials(get_agent("opencode"), f"{prefix}/m-1", environ, Path("/nowhere"))


@pytest.mark.parametrize("prefix", ROWS)
def test_every_provider_is_found_by_its_prefix(prefix: str) -> None:
    environ, base_url, dialects = ROWS[prefix]
    found = resolve(prefix, environ)
    assert found.api_key
    assert found.api_key.get_secret_value() == "k1"
    assert (found.base_url, found.dialects) == (base_url, dialects)


@pytest.mark.parametrize(("prefix", "absent"), [(prefix, name) for prefix, row in ROWS.items() for name in row[0]])
def test_a_variable_that_is_missing_is_named(prefix: str, absent: str) -> None:
    environ = {name: value for name, value in ROWS[prefix][0].items() if name != absent}
    if prefix in ("vllm", "ollama"):
        assert resolve(prefix, environ).base_url
        return
    with pytest.raises(ConfigError) as refused:
        resolve(prefix, environ)
    assert absent in str(refused.value)
    assert not any(name in refused.value.message for name in environ), "what is set is not missing"


def test_every_row_of_the_data_is_tested() -> None:
    assert set(PROVIDERS) <= set(ROWS)


def test_a_server_of_ones_own_needs_no_key() -> None:
    found = resolve("ollama", {})
    assert found.api_key
    assert (found.base_url, found.source) == ("http://127.0.0.1:11434/v1", "no key needed")


def test_bedrock_takes_a_token_or_a_pair_of_keys() -> None:
    region = {"AWS_REGION": "eu-west-1"}
    token = resolve("bedrock", {**region, "AWS_BEARER_TOKEN_BEDROCK": "k1"})
    assert {name: value.get_secret_value() for name, value in token.parameters.items()} == {
        "aws_region_name": "eu-west-1"
    }
    pair = {"AWS_ACCESS_KEY_ID": "AKIA1", "AWS_SECRET_ACCESS_KEY": "secret-1", "AWS_SESSION_TOKEN": "session-1"}
    found = resolve("bedrock", {**region, **pair})
    assert {name: value.get_secret_value() for name, value in found.parameters.items()} == {
        "aws_access_key_id": "AKIA1",
        "aws_secret_access_key": "secret-1",
        "aws_session_token": "session-1",
        "aws_region_name": "eu-west-1",
    }
    assert set(found.secrets) == set(pair.values())
    with pytest.raises(ConfigError, match="requires AWS_SECRET_ACCESS_KEY and AWS_REGION"):
        resolve("bedrock", {"AWS_ACCESS_KEY_ID": "AKIA1"})


def test_an_address_that_is_given_needs_nothing_to_be_made_of() -> None:
    found = resolve("bedrock", {**ROWS["bedrock"][0], "BEDROCK_BASE_URL": "https://vpc.example/"})
    assert found.base_url == "https://vpc.example"
