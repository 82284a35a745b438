"""Which paths are known, and that nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.gateway.dialects.table import DIALECTS, find_route, guess_dialect, normal_path

CALLS = [
    ("POST", "/v1/messages", "anthropic", "generate", "v1/messages"),
    ("POST", "/v1/messages/count_tokens", "anthropic", "count", "v1/messages/count_tokens"),
    ("GET", "/v1/models", "anthropic", "models", "v1/models"),
    ("POST", "/v1/chat/completions", "openai-chat", "generate", "chat/completions"),
    ("POST", "/chat/completions", "openai-chat", "generate", "chat/completions"),
    ("GET", "/v1/models/qwen/qwen3", "openai-chat", "models", "models/qwen/qwen3"),
    ("POST", "/v1/responses", "openai-responses", "generate", "responses"),
    ("POST", "/v1/responses/compact", "openai-responses", "generate", "responses/compact"),
    ("POST", "/v1beta/models/g-2.5:generateContent", "gemini", "generate", "v1beta/models/g-2.5:generateContent"),
    ("POST", "/v1beta/models/g:countTokens", "gemini", "count", "v1beta/models/g:countTokens"),
    ("GET", "/v1beta/models", "gemini", "models", "v1beta/models"),
    ("GET", "/v1/models/g-2.5", "gemini", "models", "v1/models/g-2.5"),
    ("POST", "/v1/models/nova:0:generateContent", "gemini", "generate", "v1/models/nova:0:generateContent"),
]


@pytest.mark.parametrize(("method", "path", "dialect", "operation", "tail"), CALLS)
def test_known_calls(method: str, path: str, dialect: str, operation: str, tail: str) -> None:
    route = find_route(method, normal_path(path), (dialect,))  # type: ignore[arg-type]
    assert route is not None
    assert (route.dialect.name, route.operation, route.tail) == (dialect, operation, tail)


def test_geminis_path_says_the_model_and_whether_to_stream() -> None:
    route = find_route("POST", normal_path("/v1beta/models/gemini-2.5-pro:streamGenerateContent"), ())
    assert route is not None
    assert (route.model, route.stream) == ("gemini-2.5-pro", True)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/files",
        "/v1/organization/api_keys",
        "/v1/messages/batches",
        "/v1/responses/resp_123",
        "/v1/embeddings",
        "/v1/fine_tuning/jobs",
        "/v1beta/models/m:embedContent",
        "/v1beta/models/m:generateContent:countTokens",
        "/v1beta/tunedModels/m:generateContent",
        "/",
        "",
        "*",
    ],
)
def test_other_calls_of_the_same_provider_are_not_known(path: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT"):
        assert find_route(method, normal_path(path), ()) is None


@pytest.mark.parametrize(
    "raw",
    [
        "http://elsewhere/v1/messages",
        "//elsewhere/v1/messages",
        "/v1/models/../files",
        "/v1/models/%2e%2e/files",
        "/v1/models/..%2ffiles",
        "/v1/models/...",
        "/v1//messages",
        "/v1/models/a%00b",
        "/v1/models/a%20b",
        "/v1/models/a\\b",
        "/v1/models/a;b",
        "/v1/models/%252e%252e",
        "/v1/models/a@evil%2fb/./c",
        "v1/messages",
        "elsewhere:443",
        "/v1/models/\u202e",
    ],
)
def test_a_path_that_is_not_plain_is_none(raw: str) -> None:
    assert normal_path(raw) == ""


@settings(deadline=None)
@given(st.text(max_size=60), st.sampled_from(["GET", "POST"]))
def test_whatever_is_asked_the_path_sent_on_is_one_of_ours(raw: str, method: str) -> None:
    for prefix in ("", "/v1/models/", "/v1beta/models/"):
        path = normal_path(prefix + raw)
        route = find_route(method, path, ())
        if route is not None:
            parts = route.tail.split("/")
            assert all(part.strip(".") for part in parts)
            assert parts[0] in ("v1", "v1beta", "v1alpha", "models", "chat", "responses", "messages")
            assert not set(route.tail) & set("?#%\\ @") - {"@"}


@pytest.mark.parametrize(
    ("path", "dialect"),
    [("/api/hello", "anthropic"), ("/v1beta/cachedContents", "gemini"), ("/v1/responses/x", "openai-responses")],
)
def test_an_unknown_call_is_answered_in_the_dialect_it_looks_like(path: str, dialect: str) -> None:
    assert guess_dialect(path, ("openai-chat",)).name == dialect
    assert guess_dialect("/x", ("gemini",)).name == "gemini"


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 408, 413, 426, 429, 500, 502, 504, 529])
def test_every_status_has_an_error_in_every_dialect(status: int) -> None:
    for dialect in DIALECTS.values():
        error = dialect.error(status, "why")["error"]
        assert isinstance(error, dict)
        assert error["message"] == "why"
