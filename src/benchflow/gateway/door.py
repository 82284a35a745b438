"""Who may come in, and with what: every request is examined before anything is sent anywhere."""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from benchflow.gateway.dialects.table import find_route, guess_dialect, normal_path
from benchflow.gateway.headers import tokens_of
from benchflow.gateway.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchflow.agent.spec import Dialect as DialectName
    from benchflow.gateway.dialects.base import Dialect, Route

REQUEST_LIMIT = 40 * 1024 * 1024
"""Bytes that a request's body may have."""

HELD_LIMIT = 256 * 1024 * 1024
"""Bytes that all requests of one pass which are under way may have together."""

BODY_TIMEOUT = 120.0
"""Seconds that a request's body may take to arrive."""


_MARKS: Mapping[str, DialectName] = {"anthropic-version": "anthropic", "x-goog-api-key": "gemini"}
"""Headers by which clients tell their dialect where several have the same path."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """A request as far as its head tells: where it wants to go, and how it is to be spoken to."""

    dialect: Dialect
    path: str
    query: str


def greet(request: web.BaseRequest, dialects: Sequence[DialectName]) -> Visitor:
    """The dialect of a request, known or guessed, so that whatever follows is said in its words."""
    target, _, query = request.raw_path.partition("?")
    path = normal_path(target)
    marked = [dialect for header, dialect in _MARKS.items() if header in request.headers]
    others = [dialect for dialect in dialects if dialect not in _MARKS.values()]
    route = find_route(request.method, path, (*marked, *others))
    return Visitor(route.dialect if route else guess_dialect(path, (*marked, *dialects)), path, query)


def check_token(request: web.BaseRequest, visitor: Visitor, token: str) -> None:
    """Raises Refusal unless the request carries the token, in whichever dialect's way."""
    given = tokens_of(request.headers, visitor.query)
    if not any(hmac.compare_digest(one.encode("utf-8", "surrogateescape"), token.encode()) for one in given):
        raise Refusal(401, "the token is not valid for this rollout")


def check_path(request: web.BaseRequest, visitor: Visitor) -> Route:
    """What the request asks for. Raises Refusal for anything that is not a known call of a dialect."""
    if request.headers.get("Upgrade", "").lower() == "websocket":
        raise Refusal(426, "there is no websocket here: use plain HTTP")
    route = visitor.dialect.route(request.method, visitor.path)
    if route is None:
        shown = visitor.path or request.raw_path[:100]
        raise Refusal(404, f"{request.method} {shown} is not a call that this gateway passes on")
    return route


async def read_body(request: web.BaseRequest, *, room: int) -> bytes:
    """The body, of at most `room` bytes. Raises Refusal when there is more, or when it does not arrive."""
    length = request.content_length
    limit = min(REQUEST_LIMIT, room)
    if length is not None and length > limit:
        raise Refusal(413, f"the request has {length} bytes, more than {limit}")
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for piece in request.content.iter_any():
                size += len(piece)
                if size > limit:
                    raise Refusal(413, f"the request has more than {limit} bytes")
                pieces.append(piece)
    except TimeoutError:
        raise Refusal(408, f"the request did not arrive within {BODY_TIMEOUT:g} s") from None
    except web.RequestPayloadError as error:
        raise Refusal(400, f"the request did not arrive as it says: {error}") from None
    return b"".join(pieces)
