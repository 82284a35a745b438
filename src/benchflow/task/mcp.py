"""MCP servers that a task offers its agent.

A header that carries a credential must take it from a `${VARIABLE}`: a secret never stands in a task's own files.
"""

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from benchflow.task.env import references, without_references
from benchflow.task.problem import show
from benchflow.task.values import Env, Table, Text, Words, bad

Transport = Literal["stdio", "sse", "streamable-http"]

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CREDENTIAL = re.compile(r"auth|cookie|credential|key|password|secret|token(?!s)", re.IGNORECASE)
_SCHEME = re.compile(r"([A-Za-z]+ +)?:*")


def _transport(value: object) -> object:
    return "streamable-http" if value == "http" else value


class McpServer(Table):
    """One server: started by `command` over stdio, or reached at `url`."""

    name: Text
    transport: Annotated[Transport, BeforeValidator(_transport)] = "sse"
    url: Text | None = Field(default=None, validate_default=True)
    command: Text | None = Field(default=None, validate_default=True)
    args: tuple[Text, ...] = ()
    headers: dict[Text, Text] = Field(default_factory=dict)
    cwd: Words | None = None
    env: Env = Field(default_factory=dict)
    tools: tuple[Words, ...] | None = None
    tags: tuple[Words, ...] | None = None

    @field_validator("url")
    @classmethod
    def _needs_url(cls, value: str | None, info: ValidationInfo) -> str | None:
        transport = info.data.get("transport", "stdio")
        if transport != "stdio" and not value:
            raise bad(f"transport {transport!r} has no url", "a url", 'add url = "http://..."')
        return value

    @field_validator("command")
    @classmethod
    def _needs_command(cls, value: str | None, info: ValidationInfo) -> str | None:
        if info.data.get("transport") == "stdio" and not value:
            raise bad("transport 'stdio' has no command", "a command", 'add command = "..."')
        return value

    @field_validator("headers")
    @classmethod
    def _safe_headers(cls, headers: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if headers and info.data.get("transport") == "stdio":
            raise bad("transport 'stdio' has no headers", "headers for HTTP transports only", "remove headers")
        for name, value in headers.items():
            _check_header(name, value)
        return headers


def _check_header(name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise bad(f"{show(name)} is not a header name", "letters, digits and '-'", "rename it")
    if any(char in value for char in "\r\n\0"):
        raise bad(f"header {name} spans lines", "a value on one line", "remove the line break")
    if not value or not _CREDENTIAL.search(name):
        return
    found = references(value)
    literal_default = any(default for _, default in found)
    if not found or literal_default or not _SCHEME.fullmatch(without_references(value)):
        raise bad(
            f"header {name} holds a credential as text",
            "a reference to a host variable, without a default",
            f'write {name} = "Bearer ${{TOKEN}}" and set TOKEN on the host',
        )
