"""Which headers pass, in which direction: pure functions.

Towards the provider goes what the client says about its request, with our credential for its token; towards the client
goes what the provider says about its answer. What concerns one connection alone, who is asking, or by which way, stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote_plus

from benchflow.gateway.encoding import known_encodings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

type Header = tuple[str, str]

HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade", "http2-settings",
})  # fmt: skip
"""Headers of one connection, which no intermediary passes on."""

CREDENTIALS = ("authorization", "x-api-key", "x-goog-api-key", "api-key")
"""Headers by which the four dialects, and Azure, carry a key."""

_NOT_UP = frozenset({
    *HOP_BY_HOP, *CREDENTIALS, "host", "content-length", "expect", "cookie", "forwarded", "via", "origin", "referer",
    "accept-encoding", "x-http-method-override", "x-http-method", "x-method-override",
})  # fmt: skip

_NOT_DOWN = frozenset({*HOP_BY_HOP, "set-cookie", "set-cookie2", "alt-svc", "location", "content-location", "server"})

_QUERY_KEYS = frozenset({"key", "access_token", "oauth_token", "bearer_token", "api_key"})
"""Query parameters that carry a key; no provider sees the client's."""

_RECORDED = frozenset({
    "anthropic-beta", "anthropic-version", "openai-beta", "user-agent", "content-type", "content-encoding",
    "request-id", "x-request-id", "retry-after", "retry-after-ms",
})  # fmt: skip


def to_provider(headers: Iterable[Header], credential: Header) -> list[Header]:
    """The headers of a request as they go to the provider.

    Only encodings that can be read here are accepted from it, because the ledger must be able to read the answer.
    """
    given = list(headers)
    named = _connection_names(given)
    passed = [
        (name, value)
        for name, value in given
        if (low := name.lower()) not in _NOT_UP and low not in named and not low.startswith(("x-forwarded-", "cf-"))
    ]
    accepted = ",".join(value for name, value in given if name.lower() == "accept-encoding")
    return [*passed, ("accept-encoding", readable(accepted)), credential]


def to_client(headers: Iterable[Header]) -> list[Header]:
    """The headers of an answer as they go to the client."""
    given = list(headers)
    named = _connection_names(given)
    return [(name, value) for name, value in given if (low := name.lower()) not in _NOT_DOWN and low not in named]


def readable(accepted: str) -> str:
    """The part of an Accept-Encoding that can be read here; `identity` when that is nothing."""
    known = known_encodings()
    offers = [offer.strip() for offer in accepted.lower().split(",")]
    return ", ".join(offer for offer in offers if offer.partition(";")[0].strip() in known) or "identity"


def query_to_provider(query: str) -> str:
    """A query without what carries keys or asks the provider to see another request than was sent."""
    parts = query.split("&") if query else []
    return "&".join(part for part in parts if not _is_private(unquote_plus(part.partition("=")[0])))


def _is_private(name: str) -> bool:
    return name.lower() in _QUERY_KEYS or name.startswith("$")


def tokens_of(headers: Mapping[str, str], query: str) -> list[str]:
    """Everything in a request that may be a token, in whichever dialect's way."""
    found = []
    for name in CREDENTIALS:
        value = headers.get(name, "")
        scheme, _, rest = value.partition(" ")
        found.append(rest.strip() if scheme.lower() == "bearer" else value)
    found += [value for name, value in parse_qsl(query) if name == "key"]
    return [token for token in found if token]


def recorded(headers: Iterable[Header]) -> dict[str, str]:
    """The few headers that explain an exchange and hold nothing private."""
    return {name.lower(): value for name, value in headers if name.lower() in _RECORDED}


def _connection_names(headers: Iterable[Header]) -> set[str]:
    """The headers that `Connection` declares to be of this connection."""
    values = [value for name, value in headers if name.lower() == "connection"]
    return {name.strip().lower() for value in values for name in value.split(",")}
