"""What the ledger keeps of an answer while its bytes pass by: decoded, put together, bounded in memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchflow.gateway.dialects.base import objects
from benchflow.gateway.encoding import UndecodableError, decoder
from benchflow.gateway.ledger import BODY_LIMIT
from benchflow.gateway.sse import SseParser

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchflow.gateway.dialects.base import Dialect, Fold, Json

TEXT_LIMIT = 64 * 1024
"""Characters kept of an answer that is not what its dialect has."""


class Capture:
    """Takes the bytes of one answer. Never raises for what they are."""

    def __init__(self, dialect: Dialect, headers: Mapping[str, str]) -> None:
        self.size = 0
        self._dialect = dialect
        self._limit = BODY_LIMIT
        self._kept = 0
        self._body: list[bytes] = []
        self._fold: Fold | None = None
        self._note = ""
        self._sse = SseParser() if "event-stream" in headers.get("content-type", "") else None
        try:
            self._decoder = decoder(headers.get("content-encoding", ""))
        except UndecodableError as error:
            self._note = str(error)

    def feed(self, data: bytes) -> None:
        self.size += len(data)
        if self._note:
            return
        try:
            for piece in self._decoder.feed(data):
                self._take(piece)
        except UndecodableError as error:
            self._note = str(error)

    def _take(self, piece: bytes) -> None:
        self._kept += len(piece)
        if self._sse is None:
            if self._kept <= self._limit:
                self._body.append(piece)
            return
        for event in self._sse.feed(piece):
            self._fold = self._fold or self._dialect.fold()
            if (data := _json(event.data)) is not None:
                self._fold.add(data, content=self._kept <= self._limit)

    @property
    def kept(self) -> int:
        """Bytes of the answer, decoded, that were kept."""
        return min(self._kept, self._limit)

    @property
    def truncated(self) -> bool:
        return self._kept > self._limit or bool(self._sse and self._sse.dropped)

    @property
    def ended(self) -> bool:
        """Whether a stream said that it had ended; what is not a stream ends with its last byte."""
        return self._sse is None or self.said_end

    @property
    def said_end(self) -> bool:
        """Whether a stream of events said that it had ended."""
        return bool(self._fold and self._fold.ended)

    def document(self) -> Json | None:
        """The answer put together, or None when it is not one of this dialect, or too large."""
        if self._fold is not None:
            return self._fold.document()
        if self._sse is not None or self.truncated:
            return None
        try:
            found = json.loads(b"".join(self._body))
        except (ValueError, RecursionError):
            return None
        if isinstance(found, list):  # Gemini streams without events as one array
            fold = self._dialect.fold()
            for chunk in objects(found):
                fold.add(chunk)
            return fold.document()
        return found if isinstance(found, dict) else None

    def to_json(self, document: Json | None) -> Json:
        """The answer as the ledger has it; `document` is what `document()` gave."""
        found: Json = {"bytes": self.size}
        if document is not None:
            found["body"] = document
        elif self._body:
            found["text"] = b"".join(self._body)[:TEXT_LIMIT].decode("utf-8", "replace")
        if self.truncated:
            found["truncated"] = True
        if self._note:
            found["unreadable"] = self._note
        return found


def _json(data: str) -> Json | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
