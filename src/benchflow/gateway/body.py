"""The body of a request: read within bounds, and understood as far as the gateway must.

What is checked must be what the provider will see, so a body that two readers could read differently (a key twice, or
in another case) is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchflow.gateway.encoding import UndecodableError, decode
from benchflow.gateway.refusal import Refusal

if TYPE_CHECKING:
    from benchflow.gateway.dialects.base import Json, Route

DECODED_LIMIT = 64 * 1024 * 1024
"""Bytes that a compressed request may hold."""

_MEANT = ("model", "stream")
"""Keys that decide what is asked of the provider."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request's body: the bytes as they came and what they say."""

    raw: bytes
    document: Json = field(default_factory=dict)
    model: str = ""
    stream: bool = False


def read_question(raw: bytes, encoding: str, route: Route) -> Question:
    """Understand a body. Raises Refusal when it cannot be understood in exactly one way."""
    if route.operation == "models":
        if raw:
            raise Refusal(400, "a list of models takes no request body")
        return Question(raw)
    try:
        document = json.loads(decode(raw, encoding, limit=DECODED_LIMIT), object_pairs_hook=_unambiguous)
    except UndecodableError as error:
        raise Refusal(400, f"the request body cannot be decoded: {error}") from None
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the request body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise Refusal(400, "the request body must be a JSON object")
    if wrong := [key for key in document if key not in _MEANT and key.lower() in _MEANT]:
        raise Refusal(400, f"the request body has the key {wrong[0]!r}: it is written in small letters")
    model = route.model or document.get("model")
    if not isinstance(model, str) or not model:
        raise Refusal(400, "the request names no model")
    stream = bool(document.get("stream")) if route.stream is None else route.stream
    return Question(raw, document, model, stream)


def _unambiguous(pairs: list[tuple[str, object]]) -> Json:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} appears twice in one object")
    return made
