"""Compressed bodies, read as they come."""

from __future__ import annotations

import gzip
import zlib

import brotli  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.gateway.encoding import STEP, UndecodableError, decode, decoder

ENCODERS = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress, "identity": bytes, "": bytes}


@pytest.mark.parametrize("encoding", ENCODERS)
@settings(deadline=None, max_examples=40)
@given(st.binary(max_size=2000), st.integers(1, 50))
def test_a_body_is_the_same_whole_and_in_pieces(encoding: str, data: bytes, step: int) -> None:
    encoded = ENCODERS[encoding](data)
    assert decode(encoded, encoding, limit=10_000) == data
    reader = decoder(encoding)
    pieces = [encoded[start : start + step] for start in range(0, len(encoded), step)]
    assert b"".join(out for piece in pieces for out in reader.feed(piece)) == data


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
def test_a_bomb_is_unpacked_in_small_pieces_and_only_to_its_limit(encoding: str) -> None:
    bomb = ENCODERS[encoding](bytes(50 * STEP))
    pieces = decoder(encoding).feed(bomb)
    assert all(len(piece) <= STEP * 2 for piece in pieces)
    with pytest.raises(UndecodableError, match="more than"):
        decode(bomb, encoding, limit=3 * STEP)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, br"])
def test_nonsense_and_unknown_encodings_are_said_to_be_so(encoding: str) -> None:
    with pytest.raises(UndecodableError):
        decode(b"this is not what it says it is" * 10, encoding, limit=1000)
