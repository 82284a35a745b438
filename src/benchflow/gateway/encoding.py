"""Bodies in transfer are compressed; the ledger reads them. Decoding is incremental and bounded."""

from __future__ import annotations

import importlib
import importlib.util
import zlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

STEP = 1024 * 1024
"""Decoded bytes that are held at a time."""


class UndecodableError(ValueError):
    """The bytes are not what their encoding says, or the encoding is not known here."""


class Decoder(Protocol):
    """Turns the bytes of a body into what they mean, as they come."""

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Decoded pieces, none longer than about `STEP`. Raises UndecodableError."""
        ...


def known_encodings() -> tuple[str, ...]:
    """The encodings that can be read here."""
    return ("gzip", "deflate", *(["br"] if importlib.util.find_spec("brotli") else []))


def decoder(encoding: str) -> Decoder:
    """A decoder for one body. Raises UndecodableError for an encoding (or a stack of them) that is not known."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return _Plain()
    if name in ("gzip", "x-gzip", "deflate"):
        return _Zlib()
    if name == "br" and "br" in known_encodings():
        return _Brotli()
    raise UndecodableError(f"unknown encoding {encoding!r}")


def decode(data: bytes, encoding: str, *, limit: int) -> bytes:
    """A whole body. Raises UndecodableError, also when there is more than `limit` in it."""
    pieces: list[bytes] = []
    size = 0
    for piece in decoder(encoding).feed(data):
        size += len(piece)
        if size > limit:
            raise UndecodableError(f"more than {limit} bytes when decoded")
        pieces.append(piece)
    return b"".join(pieces)


class _Plain:
    def feed(self, data: bytes) -> Iterable[bytes]:
        return (data,)


class _Zlib:
    """gzip and zlib, told apart by their first bytes."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=47)

    def feed(self, data: bytes) -> Iterable[bytes]:
        while data:
            try:
                piece = self._inflate.decompress(data, STEP)
            except zlib.error as error:
                raise UndecodableError(str(error)) from None
            data = self._inflate.unconsumed_tail
            if self._inflate.eof:
                data, self._inflate = self._inflate.unused_data, zlib.decompressobj(wbits=47)
            if piece:
                yield piece
            elif not data:
                return


class _Brotli:
    def __init__(self) -> None:
        brotli = importlib.import_module("brotli")

        self._error: type[Exception] = brotli.error
        self._brotli = brotli.Decompressor()

    def feed(self, data: bytes) -> Iterable[bytes]:
        while True:
            try:
                piece = self._brotli.process(data, output_buffer_limit=STEP)
            except self._error as error:
                raise UndecodableError(str(error)) from None
            data = b""
            if piece:
                yield piece
            elif self._brotli.can_accept_more_data():
                return
