"""Every exchange with a model, one line each, on disk as soon as it ended. No secret reaches the file.

A line is an object of type `exchange` (see `Exchange`); `read_exchanges` reads them back, also from a file whose writer
was killed. Of bodies larger than `BODY_LIMIT`, and of all bodies once `LEDGER_LIMIT` is reached, only the size is kept.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from benchflow.trajectory.reader import read_events
from benchflow.trajectory.redact import Redactor
from benchflow.trajectory.writer import TrajectoryWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from benchflow.gateway.dialects.base import Json

BODY_LIMIT = 16 * 1024 * 1024
"""Bytes of a request's or an answer's body that are kept."""

LEDGER_LIMIT = 2 * 1024 * 1024 * 1024
"""Bytes of bodies that one ledger keeps: an agent must not fill the disk. All of it may take twice as much."""


@dataclass(slots=True)
class Exchange:
    """One request and its answer, as the client saw them.

    `ended` is how it ended: `complete`; `refused` by the gateway; `failed`, when the provider could not be asked;
    `broken`, when its answer stopped in the middle; `left`, when the client hung up; `closed`, when its rollout ended.
    Times are in seconds since the request had arrived: `first_byte` of the answer, `latency` of all of it; `waited` is
    the part of it that was spent because the provider was busy. `retries` says what each attempt before the last one
    met. `replayed` answers came from a recording and cost nothing. `tokens` and `cost` are None where not known.
    """

    ts: str
    id: int
    dialect: str
    operation: str
    method: str
    path: str
    provider: str
    model: str = ""
    stream: bool = False
    status: int | None = None
    ended: str = "failed"
    error: str | None = None
    latency: float = 0.0
    first_byte: float | None = None
    waited: float = 0.0
    retries: list[dict[str, object]] = field(default_factory=list)
    answered_by: str | None = None
    replayed: bool = False
    tokens: dict[str, int] | None = None
    cost: float | None = None
    prices: str | None = None
    request: dict[str, object] = field(default_factory=dict)
    response: dict[str, object] = field(default_factory=dict)
    type: str = "exchange"


class Ledger:
    """The ledger of one rollout, perhaps of several passes. Raises BenchflowError when it cannot be written.

    None of `secrets` reaches the file, neither as it is nor as it stands in a URL or in base64.
    """

    def __init__(self, path: Path, *, secrets: Iterable[str] = ()) -> None:
        self._secrets = [form for secret in secrets for form in _forms(secret)]
        self._writer = TrajectoryWriter(path, secrets=self._secrets, limit=2 * LEDGER_LIMIT)
        self._ids = 0
        self._kept = 0

    @property
    def path(self) -> Path:
        return self._writer.path

    def hide(self, *secrets: str) -> None:
        """Keep these out of everything that is written from now on."""
        forms = [form for secret in secrets for form in _forms(secret)]
        self._secrets += forms
        self._writer.hide(*forms)

    def without_secrets(self, document: Json) -> Json:
        """A document as it would be written."""
        return cast("Json", Redactor(self._secrets).value(document))

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def room(self, size: int) -> bool:
        """Whether a body of `size` bytes is kept; if so, it is counted."""
        fits = size <= BODY_LIMIT and self._kept + size <= LEDGER_LIMIT
        self._kept += size if fits else 0
        return fits

    def append(self, exchange: Exchange) -> None:
        self._writer.append({one.name: getattr(exchange, one.name) for one in fields(exchange)})

    def close(self) -> None:
        self._writer.close()


def _forms(secret: str) -> Iterator[str]:
    """A secret in the ways in which it is commonly written. In base64 there are three, by the place where it begins."""
    if not secret:
        return
    yield secret
    yield quote(secret, safe="")
    data = secret.encode("utf-8", "surrogatepass")
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + data).decode()
        begin = (0, 2, 3)[before]
        yield whole[begin : len(whole) - (0, 3, 2)[(before + len(data)) % 3]]


def read_exchanges(path: Path) -> Iterator[Json]:
    """The exchanges of a ledger, in the order in which they ended. A file that does not exist has none."""
    return (line for line in read_events(path) if line["type"] == "exchange")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
