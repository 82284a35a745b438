"""What the gateway understands of a request's body."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.gateway.body import read_question
from benchflow.gateway.dialects.table import find_route
from benchflow.gateway.refusal import Refusal

if TYPE_CHECKING:
    from benchflow.gateway.dialects.base import Route


def route(method: str, path: str) -> Route:
    found = find_route(method, path, ())
    assert found is not None
    return found


CHAT = route("POST", "/v1/chat/completions")
GEMINI = route("POST", "/v1beta/models/gemini-x:streamGenerateContent")
MODELS = route("GET", "/v1beta/models")


def test_model_and_stream_are_read_from_the_body_or_the_path() -> None:
    raw = json.dumps({"model": "gpt-5.5", "stream": True, "messages": []}).encode()
    question = read_question(raw, "", CHAT)
    assert (question.model, question.stream, question.raw) == ("gpt-5.5", True, raw)
    question = read_question(b'{"contents": [], "model": "other"}', "", GEMINI)
    assert (question.model, question.stream) == ("gemini-x", True)
    assert read_question(b"", "", MODELS).model == ""


def test_a_compressed_body_is_understood_and_kept_as_it_is() -> None:
    raw = gzip.compress(b'{"model": "m"}')
    question = read_question(raw, "gzip", CHAT)
    assert (question.model, question.raw) == ("m", raw)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b'{"model": "allowed", "model": "other"}', "'model' appears twice"),
        (b'{"model": "allowed", "mod\\u0065l": "other"}', "'model' appears twice"),
        (b'{"model": "allowed", "Model": "other"}', "small letters"),
        (b'{"model": "allowed", "STREAM": true}', "small letters"),
        (b'{"model": "m", "messages": [{"role": "a", "role": "b"}]}', "appears twice"),
        (b"", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"messages": []}', "names no model"),
        (b'{"model": 5}', "names no model"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_body_that_can_be_read_in_two_ways_or_in_none_is_refused(raw: bytes, why: str) -> None:
    with pytest.raises(Refusal, match=why) as refused:
        read_question(raw, "", CHAT)
    assert refused.value.status == 400


def test_a_body_in_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(Refusal, match="zstd"):
        read_question(b"x", "zstd", CHAT)


def test_a_list_of_models_takes_no_body() -> None:
    with pytest.raises(Refusal, match="no request body"):
        read_question(b"{}", "", MODELS)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_understood_or_refused(raw: bytes) -> None:
    try:
        question = read_question(raw, "", CHAT)
    except Refusal:
        return
    assert question.model
