"""What a model's name tells about who serves it."""

from __future__ import annotations

import pytest

from benchflow.agent.providers import get_provider, infer_provider, provider_url, split_model


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
