"""Which dialect a request is in, told by its path, and the ways a client can prove who it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from benchflow.gateway.dialects.anthropic import Anthropic
from benchflow.gateway.dialects.chat import Chat
from benchflow.gateway.dialects.gemini import Gemini
from benchflow.gateway.dialects.responses import Responses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchflow.agent.spec import Dialect as DialectName
    from benchflow.gateway.dialects.base import Dialect, Route

DIALECTS: Mapping[DialectName, Dialect] = {
    dialect.name: dialect for dialect in (Anthropic(), Chat(), Responses(), Gemini())
}

_PLAIN_PATH = re.compile(r"(?:/[A-Za-z0-9_.:@-]+)+")


def normal_path(raw: str) -> str:
    """The path of a request target without query, or nothing when it is not a plain absolute path.

    Escapes are resolved once; what then holds anything but names and slashes, or a step upwards, is not plain.
    """
    path = unquote(raw.partition("?")[0])
    if not _PLAIN_PATH.fullmatch(path) or any(part.strip(".") == "" for part in path.split("/")[1:]):
        return ""
    return path


def find_route(method: str, path: str, preferred: Sequence[DialectName]) -> Route | None:
    """What a request asks for. Where dialects share a path, which is that of the models, the preferred one has it."""
    order = dict.fromkeys((*preferred, *DIALECTS))
    return next((route for name in order if (route := DIALECTS[name].route(method, path))), None)


def guess_dialect(path: str, preferred: Sequence[DialectName]) -> Dialect:
    """The dialect in which a request that no dialect knows is answered: the one whose paths look like it."""
    if re.match(r"/v1(beta|alpha)", path):
        return DIALECTS["gemini"]
    if path.startswith(("/v1/messages", "/messages", "/api/")):
        return DIALECTS["anthropic"]
    if "/responses" in path:
        return DIALECTS["openai-responses"]
    return DIALECTS[preferred[0] if preferred else "openai-chat"]
