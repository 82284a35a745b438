"""What the four dialects have in common: a request as the script sees it, an answer before it is put into words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from benchflow.testing.model.script import Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

INPUT_TOKENS = 1001
CACHED_TOKENS = 64
OUTPUT_TOKENS = 17
REASONING_TOKENS = 5
"""The usage of every answer: fixed, and easy to recognise. The cached tokens are part of the input."""

PIECES = 8
"""Into how many deltas a streamed text is cut at most."""

type Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a request offers. A `custom` one takes free text instead of arguments."""

    name: str
    schema: Json = field(default_factory=dict)
    kind: Literal["function", "custom"] = "function"
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A request for an answer: what is offered, what the user's side said, and what was answered before."""

    model: str
    stream: bool
    tools: tuple[Tool, ...]
    prompts: tuple[str, ...]
    history: tuple[Reply, ...]
    json_schema: Json | None = None
    thinking: bool = True
    usage: bool = True
    """Whether the end of a stream shall report usage."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: `arguments` for a function, `text` for a custom tool."""

    tool: Tool
    id: str
    arguments: Json = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer of the model. `id` is unique on the server."""

    id: str
    model: str
    text: str = ""
    thought: str = ""
    call: Call | None = None
    usage: bool = True


@dataclass(frozen=True, slots=True)
class Sse:
    """One server-sent event; a `paced` one is a piece of the text, before which a slow model waits."""

    data: Json | str
    event: str | None = None
    paced: bool = False


class Dialect(Protocol):
    """One wire API: reads requests, and puts answers into words, whole and streamed."""

    name: str

    def read(self, body: Json) -> Question: ...

    def whole(self, done: Completion) -> Json: ...

    def stream(self, done: Completion) -> Iterator[Sse]: ...

    def count(self) -> Json:
        """The answer to a request to count tokens."""
        ...

    def error(self, status: int, message: str) -> Json: ...


class Side:
    """Gathers a history: whatever the model's side says until the user's side speaks is one reply."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self._replies: list[Reply] = []
        self._texts: list[str] = []
        self._called = False
        self._open = False

    def user(self, text: str | None) -> None:
        """Something from the user's side: a prompt, or a tool's result (None)."""
        if self._open:
            self._replies.append(Reply("\n".join(self._texts), self._called))
            self._texts, self._called, self._open = [], False, False
        if text is not None:
            self.prompts.append(text)

    def model(self, text: str = "", *, called: bool = False) -> None:
        """Something from the model's side."""
        self._open = True
        self._called = self._called or called
        if text:
            self._texts.append(text)

    def replies(self) -> tuple[Reply, ...]:
        self.user(None)
        return tuple(self._replies)


def pieces(text: str) -> list[str]:
    """A text cut for streaming, at any place, as models do."""
    size = max(1, -(-len(text) // PIECES))
    return [text[start : start + size] for start in range(0, len(text), size)]


def flat(content: object) -> str:
    """All text inside a content value of any dialect."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(flat(item) for item in content)
    if isinstance(content, dict):
        return "\n".join(flat(item) for key, item in content.items() if key in ("text", "content", "output", "parts"))
    return ""


def objects(value: object) -> list[Json]:
    """The JSON objects of a list; anything else has none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def get(value: object, *keys: str) -> object:
    """A value deep inside objects, or None."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def get_object(value: object, *keys: str) -> Json:
    found = get(value, *keys)
    return found if isinstance(found, dict) else {}
