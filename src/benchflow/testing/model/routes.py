"""Which path belongs to which dialect, and the lists of models."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchflow.testing.model.anthropic import Anthropic
from benchflow.testing.model.chat import Chat
from benchflow.testing.model.gemini import Gemini
from benchflow.testing.model.responses import Responses

if TYPE_CHECKING:
    from benchflow.testing.model.wire import Dialect, Json

MODELS = ("scripted-1", "claude-sonnet-4-6", "gpt-5.5", "gemini-2.5-flash")
"""Models that the server says it has. It answers for any other name as well."""


@dataclass(frozen=True, slots=True)
class Route:
    """What a path asks for. Gemini's paths also say the model and whether to stream."""

    dialect: Dialect
    count: bool = False
    model: str = ""
    stream: bool = False


_ENDINGS = (
    ("/messages/count_tokens", Route(Anthropic(), count=True)),
    ("/messages", Route(Anthropic())),
    ("/chat/completions", Route(Chat())),
    ("/responses/input_tokens", Route(Responses(), count=True)),
    ("/responses", Route(Responses())),
)


def route_of(path: str) -> Route | None:
    """The route of a POST, whatever prefix a base URL put in front of it; None for a path that no dialect has."""
    gemini = re.search(r"/models/([^/:]+):(\w+)$", path)
    if gemini is None:
        return next((route for ending, route in _ENDINGS if path.endswith(ending)), None)
    model, verb = gemini.groups()
    if verb not in ("countTokens", "generateContent", "streamGenerateContent"):
        return None
    return Route(Gemini(), verb == "countTokens", model, verb == "streamGenerateContent")


def models_list(path: str) -> Json | None:
    """The answer to a GET of the models, or of one of them; None for any other path."""
    found = re.search(r"/models(?:/([^/]+))?/?$", path)
    if found is None:
        return None
    gemini = "v1beta" in path
    listed = [_model(name, gemini) for name in ([found[1]] if found[1] else MODELS)]
    if found[1]:
        return listed[0]
    return {"models": listed} if gemini else {"object": "list", "has_more": False, "data": listed}


def _model(name: str, gemini: bool) -> Json:
    if gemini:
        return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": ["generateContent"]}
    return {"id": name, "object": "model", "type": "model", "display_name": name, "created": 1, "owned_by": "scripted"}
