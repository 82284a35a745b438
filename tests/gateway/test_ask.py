"""The way to a judge's model, found before anything is sent."""

from __future__ import annotations

import pytest

from benchflow.errors import ConfigError
from benchflow.gateway.ask import resolve_model


@pytest.mark.parametrize(
    ("model", "environ", "url", "dialect"),
    [
        ("anthropic/m", {"ANTHROPIC_API_KEY": "k"}, "https://api.anthropic.com/v1/messages", "anthropic"),
        (
            "mine/m",
            {"MINE_API_KEY": "k", "MINE_BASE_URL": "http://x/v1"},
            "http://x/v1/chat/completions",
            "openai-chat",
        ),
    ],
)
def test_where_a_model_is(model: str, environ: dict[str, str], url: str, dialect: str) -> None:
    found = resolve_model(model, environ)
    assert (found.model, found.url, found.dialect) == ("m", url, dialect)
    assert "'k'" not in repr(found)


@pytest.mark.parametrize(
    ("model", "environ", "words"),
    [
        ("nobody-knows", {}, "does not tell its provider"),
        ("openai/m", {}, "OPENAI_API_KEY"),
        ("mine/m", {"MINE_API_KEY": "k"}, "MINE_BASE_URL"),
        ("bedrock/m", {"AWS_BEARER_TOKEN_BEDROCK": "k"}, "only reached through the gateway"),
        ("vertex/m", {"GOOGLE_APPLICATION_CREDENTIALS": "k"}, "only reached through the gateway"),
    ],
)
def test_what_is_missing_is_named(model: str, environ: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        resolve_model(model, environ)
