"""An error of a provider, read whole: what to pass on, and what to make of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from multidict import CIMultiDict

from benchflow.gateway.encoding import UndecodableError, decode
from benchflow.gateway.upstream import UpstreamError
from benchflow.gateway.verdict import read_error
from benchflow.trajectory.redact import MASK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchflow.gateway.upstream import Reply
    from benchflow.gateway.verdict import ProviderError

ERROR_LIMIT = 1024 * 1024
"""Bytes that an error may have."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`raw` and `headers` are what the provider sent; `body` is what it means."""

    status: int
    headers: CIMultiDict[str]
    raw: bytes
    body: bytes
    error: ProviderError


async def read_fault(reply: Reply, secrets: Iterable[str]) -> Fault:
    """Read an error to its end. A key, which some providers repeat, is masked in it. Raises UpstreamError."""
    raw = await _read(reply)
    headers = CIMultiDict(reply.headers)
    try:
        body = decode(raw, headers.get("content-encoding", ""), limit=ERROR_LIMIT)
    except UndecodableError:
        body = b""
    for secret in (one.encode() for one in secrets if one and one.encode() in body):
        raw = body = body.replace(secret, MASK.encode())
        for name in ("content-encoding", "content-length"):
            headers.popall(name, None)
    return Fault(reply.status, headers, raw, body, read_error(body))


async def _read(reply: Reply) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for chunk in reply.chunks:
        size += len(chunk)
        if size > ERROR_LIMIT:
            raise UpstreamError(f"the provider's error (HTTP {reply.status}) has more than {ERROR_LIMIT} bytes")
        pieces.append(chunk)
    return b"".join(pieces)
