"""What clients ask beside answers of a model, told by the gateway itself where the provider speaks another dialect.

The models are those that the rollout was configured for. A number of tokens is an estimate, good enough for an agent to
tell how full its context is.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from benchflow.gateway.refusal import Refusal
from benchflow.gateway.upstream import Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchflow.agent.spec import Dialect
    from benchflow.gateway.account import Account
    from benchflow.gateway.dialects.base import Json
    from benchflow.gateway.upstream import Call

CHARACTERS = 4
"""Characters that a token has, by and large."""

IMAGE_TOKENS = 1600
"""Tokens of an image, or of another file."""

_DATA = frozenset({"data", "image_url", "file_data"})
"""Keys under which images and files are, whose size says nothing of their tokens."""


class Courtesy:
    """An `Upstream` for lists of models and counts of tokens."""

    free = False

    def __init__(self, account: Account) -> None:
        self.name = account.provider
        self._account = account

    @asynccontextmanager
    async def send(self, call: Call) -> AsyncIterator[Reply]:
        """Answer. Raises Refusal for a model that is none of the account's."""
        if call.route.operation == "count":
            told = _count(call.route.dialect.name, estimate(call.question.document))
        else:
            told = self._models(call.route.dialect.name, call.route.tail.partition("models/")[2])

        async def chunks() -> AsyncIterator[bytes]:
            yield json.dumps(told).encode()

        yield Reply(200, chunks(), (("content-type", "application/json"),))

    def _models(self, dialect: Dialect, wanted: str) -> Json:
        if wanted and not self._account.allows(wanted):
            raise Refusal(404, f"the model {wanted!r} is not one that this rollout was configured for (allow_models)")
        if wanted:
            return _model(dialect, wanted, self.name)
        listed = [_model(dialect, self._account.model, self.name)] if self._account.model else []
        if dialect == "gemini":
            return {"models": listed}
        return {"object": "list", "data": listed, "has_more": False}


def estimate(document: object) -> int:
    """About how many tokens a request has: by the length of its texts, and by the number of its images."""
    if isinstance(document, str):
        return -(-len(document) // CHARACTERS)
    if isinstance(document, list):
        return sum(estimate(item) for item in document)
    if isinstance(document, dict):
        return sum(IMAGE_TOKENS if key in _DATA else estimate(key) + estimate(item) for key, item in document.items())
    return 1


def _count(dialect: Dialect, tokens: int) -> Json:
    if dialect == "gemini":
        return {"totalTokens": tokens}
    kind: Json = {"object": "response.input_tokens"} if dialect == "openai-responses" else {}
    return {**kind, "input_tokens": tokens}


def _model(dialect: Dialect, name: str, provider: str) -> Json:
    match dialect:
        case "anthropic":
            return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
        case "gemini":
            methods = ["generateContent", "countTokens"]
            return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}
        case _:
            return {"id": name, "object": "model", "created": 0, "owned_by": provider}
