"""What the gateway knows of a wire dialect, and nothing more: its paths, its errors, its usage, its streams.

A `Fold` puts a stream together to the document that the same call without streaming would have given; `unfold` is the
way back, for replays. What a dialect adds that is not known here stays in the document where it can and is never an
error: the bytes themselves pass by untouched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.agent.spec import Dialect as DialectName
    from benchflow.gateway.sse import Event
    from benchflow.gateway.tokens import Tokens

type Json = dict[str, object]

Operation = Literal["generate", "count", "models"]


@dataclass(frozen=True, slots=True)
class Route:
    """What a request asks for. `tail` follows the provider's base URL; `model` and `stream` are what the path says."""

    dialect: Dialect
    operation: Operation
    tail: str
    model: str = ""
    stream: bool | None = None


class Fold(Protocol):
    """Puts a stream together, event by event."""

    ended: bool
    """Whether the event that ends an answer was seen."""

    def add(self, event: Json, *, content: bool = True) -> None:
        """Take one event. Without `content` only what counts (usage, reasons, errors) is kept of it."""
        ...

    def document(self) -> Json:
        """What was said so far, in the shape of an answer that was not streamed."""
        ...


class Dialect(Protocol):
    """One wire API. Stateless."""

    name: DialectName
    root: str
    """What a client's base URL has behind the address of the gateway."""
    spent_status: int
    """The HTTP status by which clients of this dialect understand that there is no money left, and do not try again."""

    def route(self, method: str, path: str) -> Route | None:
        """What a path (normalised) asks for, or None when this dialect does not have it."""
        ...

    def credential(self, key: str) -> tuple[str, str]:
        """The header that carries a key."""
        ...

    def error(self, status: int, message: str) -> Json: ...

    def tokens(self, document: Json) -> Tokens | None:
        """The usage that an answer reports, or None when it reports none."""
        ...

    def fold(self) -> Fold: ...

    def unfold(self, document: Json) -> Iterator[Event]:
        """An answer as the events of a stream."""
        ...


def get(value: object, *keys: str) -> object:
    """A value deep inside objects, or None."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def text(value: object, *keys: str) -> str:
    """A string deep inside objects, or the empty one."""
    found = get(value, *keys)
    return found if isinstance(found, str) else ""


def objects(value: object) -> list[Json]:
    """The objects of a list; anything else has none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def place(value: object) -> int:
    """An index as a stream names it: a small number, zero where it is missing or nonsense."""
    return value if isinstance(value, int) and 0 <= value < PLACES else 0


PLACES = 100_000
"""Blocks, choices or tool calls that one answer may have."""


class Pieces:
    """Texts that grow: each belongs to a place, and is joined once at the end."""

    def __init__(self) -> None:
        self._texts: dict[tuple[object, ...], list[str]] = {}

    def add(self, where: tuple[object, ...], piece: object) -> None:
        if isinstance(piece, str):
            self._texts.setdefault(where, []).append(piece)

    def join(self) -> dict[tuple[object, ...], str]:
        return {where: "".join(pieces) for where, pieces in self._texts.items()}
