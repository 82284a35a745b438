"""MCP servers: what a transport needs, and that credentials never stand in the task."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from benchflow.task.mcp import McpServer


def server(**headers: str) -> McpServer:
    return McpServer.model_validate({"name": "x", "url": "http://a", "headers": headers})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", "Bearer ${TOKEN}"),
        ("Authorization", "${TOKEN}"),
        ("Authorization", "Basic ${A}:${B}"),
        ("Authorization", "${TOKEN:-}"),
        ("Authorization", ""),
        ("X-Api-Key", "${KEY}"),
        ("X-Max-Tokens", "100"),
        ("X-Trace", "abc"),
        ("X-Trace", "a${B}c${D:-e}"),
    ],
)
def test_good_headers(name: str, value: str) -> None:
    assert server(**{name: value}).headers == {name: value}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", "Bearer abc"),
        ("Authorization", "Bearer abc${A}"),
        ("authorization", "${A:-abc}"),
        ("Authorization", "Bearer "),
        ("Proxy-Authorization", "abc"),
        ("Cookie", "session=${S}"),
        ("X-Api-Key", "v1-${K}"),
        ("X-Auth-Token", "abc"),
        ("X-Secret", "abc"),
        ("X-Password", "abc"),
        ("X-Credential", "abc"),
        ("X Foo", "a"),
        ("", "a"),
        ("X-Foo", "a\nb"),
    ],
)
def test_bad_headers(name: str, value: str) -> None:
    with pytest.raises(ValidationError):
        server(**{name: value})


def test_stdio_has_no_headers() -> None:
    with pytest.raises(ValidationError):
        McpServer.model_validate({"name": "x", "transport": "stdio", "command": "c", "headers": {"A": "b"}})
