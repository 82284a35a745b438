"""Which headers and query parameters pass."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.gateway.headers import (
    CREDENTIALS,
    HOP_BY_HOP,
    query_to_provider,
    readable,
    recorded,
    to_client,
    to_provider,
    tokens_of,
)

NAMES = st.one_of(
    st.sampled_from([*HOP_BY_HOP, *CREDENTIALS, "Host", "Cookie", "Set-Cookie", "Content-Length", "X-Forwarded-For"]),
    st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,15}", fullmatch=True),
)
CASED = st.builds(lambda name, upper: name.upper() if upper else name, NAMES, st.booleans())
HEADERS = st.lists(st.tuples(CASED, st.sampled_from(["a", "secret-token", "close, X-Private", "gzip"])), max_size=12)


@settings(deadline=None)
@given(HEADERS)
def test_no_credential_of_the_client_and_nothing_of_its_connection_reaches_the_provider(
    headers: list[tuple[str, str]],
) -> None:
    passed = to_provider(headers, ("x-api-key", "ours"))
    names = [name.lower() for name, _ in passed]
    assert names.count("x-api-key") == 1
    assert ("x-api-key", "ours") in passed
    private = {*HOP_BY_HOP, *CREDENTIALS, "host", "cookie", "content-length"} - {"x-api-key"}
    assert not private & set(names)
    declared = {
        word.strip().lower() for name, value in headers if name.lower() == "connection" for word in value.split(",")
    }
    assert not declared & (set(names) - {"x-api-key", "accept-encoding"})
    assert names.count("accept-encoding") == 1


@settings(deadline=None)
@given(HEADERS)
def test_everything_else_passes_in_its_order(headers: list[tuple[str, str]]) -> None:
    extra = [(f"X-App-{index}", value) for index, (_, value) in enumerate(headers)]
    mixed = [one for pair in zip(headers, extra, strict=True) for one in pair]
    assert [one for one in to_provider(mixed, ("k", "v")) if one[0].startswith("X-App-")] == extra
    assert [one for one in to_client(mixed) if one[0].startswith("X-App-")] == extra


def test_an_answer_loses_its_cookies_and_what_is_of_its_connection() -> None:
    given_headers = [
        ("Content-Type", "text/event-stream"),
        ("Set-Cookie", "cf=1"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "X-Mine"),
        ("x-mine", "1"),
        ("Location", "http://elsewhere/"),
        ("Content-Encoding", "gzip"),
    ]
    assert to_client(given_headers) == [("Content-Type", "text/event-stream"), ("Content-Encoding", "gzip")]


def test_only_encodings_that_the_ledger_can_read_are_accepted() -> None:
    assert readable("gzip, deflate, zstd;q=0.5") == "gzip, deflate"
    assert readable("zstd") == "identity"
    assert readable("") == "identity"


def test_keys_and_requests_within_requests_are_taken_out_of_the_query() -> None:
    assert query_to_provider("key=abc&alt=sse") == "alt=sse"
    assert query_to_provider("%6bey=abc&beta=true") == "beta=true"
    assert query_to_provider("access_token=a&%24httpMethod=DELETE&$httpHeaders=x:y&pageSize=5") == "pageSize=5"
    assert query_to_provider("") == ""


def test_a_token_is_found_in_the_way_of_every_dialect() -> None:
    assert tokens_of({"x-api-key": "t"}, "") == ["t"]
    assert tokens_of({"authorization": "Bearer t"}, "") == ["t"]
    assert tokens_of({"authorization": "bearer  t"}, "") == ["t"]
    assert tokens_of({"x-goog-api-key": "t"}, "") == ["t"]
    assert tokens_of({}, "alt=sse&key=t") == ["t"]
    assert tokens_of({"x-other": "t"}, "token=t") == []


def test_no_header_that_may_hold_a_secret_is_recorded() -> None:
    headers = [("Authorization", "Bearer s"), ("X-Api-Key", "s"), ("User-Agent", "claude"), ("X-Custom", "s")]
    assert recorded(headers) == {"user-agent": "claude"}
