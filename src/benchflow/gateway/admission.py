"""A rollout's pass to its model: a token, what it is good for, and the connections that use it.

Connections come from inside a sandbox (`sandbox.listen(pass_.serve)`) and are answered here; nothing listens on this
machine. A pass that was closed is dead: its connections are cut, its running requests ended and written down, and its
token opens nothing.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from aiohttp import web

from benchflow.gateway.body import read_question
from benchflow.gateway.dialects.table import DIALECTS
from benchflow.gateway.door import HELD_LIMIT, check_path, check_token, greet, read_body
from benchflow.gateway.flight import Flight
from benchflow.gateway.refusal import Refusal
from benchflow.gateway.tunnel import carry
from benchflow.gateway.upstream import Call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from benchflow.agent.spec import Dialect as DialectName
    from benchflow.gateway.alarm import Alarm, Trip
    from benchflow.gateway.books import Books
    from benchflow.gateway.budget import Usage
    from benchflow.gateway.dialects.base import Dialect, Route
    from benchflow.gateway.door import Visitor
    from benchflow.gateway.tunnel import Pair
    from benchflow.gateway.upstream import Upstream

CONNECTIONS = 64
"""Connections that one pass may have open."""

HEAD_TIMEOUT = 300.0
"""Seconds that a connection may be open without a complete request head: before its first request, and between two."""

HEAD_LIMIT = 64 * 1024
"""Bytes of a request's first line, and of each of its headers."""

REFUSALS_KEPT = 200
"""Refused requests of one pass that are written down; more of them are only counted."""

CLOSE_TIMEOUT = 5.0
"""Seconds that connections without a request may take to end."""

_QUIET = logging.getLogger("benchflow.gateway.http")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False

type Router = Callable[[Route], Awaitable[Upstream]]
"""Who answers a request. Raises Refusal when nobody can."""


class Pass:
    """Made by `Gateway.admit`; closed by its rollout."""

    def __init__(self, books: Books, router: Router) -> None:
        self.token = f"bf-{secrets.token_urlsafe(32)}"
        self.refused = 0
        self._books = books
        self._router = router
        self._closed = False
        self._held = 0
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._connections: set[asyncio.Timeout] = set()
        self._server = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            logger=_QUIET,
            auto_decompress=False,
            keepalive_timeout=HEAD_TIMEOUT,
            max_line_size=HEAD_LIMIT,
            max_field_size=HEAD_LIMIT,
        )
        books.ledger.hide(self.token, *books.account.secrets)

    @staticmethod
    def base_url(dialect: DialectName, port: int) -> str:
        """What a client of `dialect` is given as its base URL, when its sandbox listens on `port`."""
        return f"http://127.0.0.1:{port}{DIALECTS[dialect].root}"

    @property
    def usage(self) -> Usage:
        """What was used so far."""
        return self._books.tally.usage

    @property
    def waiting_seconds(self) -> float:
        """How long the provider was waited for, so far."""
        return self._books.tally.clock.seconds

    @property
    def alarm(self) -> Alarm:
        """Rings when requests begin to be refused."""
        return self._books.tally.alarm

    @property
    def tripped(self) -> Trip | None:
        """Why requests are refused, if they are."""
        return self._books.tally.trip

    @property
    def closed(self) -> bool:
        return self._closed

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection from inside, until it ends. For `Sandbox.listen`."""
        if self._closed or len(self._connections) >= CONNECTIONS:
            writer.close()
            return
        with self._work(), suppress(TimeoutError):
            async with asyncio.timeout(None) as connection:
                self._connections.add(connection)
                try:
                    await carry((reader, writer), await self._connect())
                finally:
                    self._connections.discard(connection)

    async def close(self) -> None:
        """End everything that uses this pass. Idempotent. Afterwards every exchange is in the ledger."""
        self._closed = True
        now = asyncio.get_running_loop().time()
        for connection in self._connections:
            connection.reschedule(now)
        await self._idle.wait()
        self._server.pre_shutdown()
        await self._server.shutdown(CLOSE_TIMEOUT)

    async def _connect(self) -> Pair:
        """A connection to our own server, which has no address that anybody else could connect to."""
        ours, theirs = socket.socketpair()
        with ExitStack() as stack:
            stack.enter_context(ours)
            stack.enter_context(theirs)
            await asyncio.get_running_loop().connect_accepted_socket(self._server, theirs)
            pair = await asyncio.open_connection(sock=ours)
            stack.pop_all()
        return pair

    # -- one request -----------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        visitor = greet(request, self._books.account.dialects)
        with self._work():
            try:
                check_token(request, visitor, self.token)
                return await self._admitted(request, visitor)
            except Refusal as refusal:
                error = visitor.dialect.error(refusal.status, refusal.message)
                return web.json_response(error, status=refusal.status)

    async def _admitted(self, request: web.BaseRequest, visitor: Visitor) -> web.StreamResponse:
        held = 0
        try:
            route = check_path(request, visitor)
            self._check_open(visitor.dialect, "")
            raw = await read_body(request, room=HELD_LIMIT - self._held)
            held = len(raw)
            self._held += held
            question = read_question(raw, request.headers.get("content-encoding", ""), route)
            self._check_open(visitor.dialect, question.model)
            if question.model and not self._books.account.allows(question.model):
                self._books.tally.stranger(question.model)
                said = f"the model {question.model!r} is not one that this rollout was configured for"
                raise Refusal(404, f"{said} (allow_models)")
            upstream = await self._router(route)
            if upstream.free:  # what was recorded is without secrets, and is compared with this
                question = replace(question, document=self._books.ledger.without_secrets(question.document))
        except Refusal as refusal:
            if refusal.status == 502:
                self._books.tally.starved = refusal.message
            self._note(request, visitor, refusal)
            raise
        else:
            call = Call(route, request.method, visitor.query, list(request.headers.items()), question)
            return await self._fly(request, call, upstream)
        finally:
            self._held -= held

    async def _fly(self, request: web.BaseRequest, call: Call, upstream: Upstream) -> web.StreamResponse:
        # The clock runs for all of the time that the ledger says an exchange took.
        with self._books.tally.clock.waiting():
            flight = Flight(call, upstream, self._books)
            try:
                return await flight.answer(request)
            finally:
                flight.land(closed=self._closed)

    def _check_open(self, dialect: Dialect, model: str) -> None:
        """Raises Refusal when nothing more is to be sent."""
        if self._closed:
            raise Refusal(401, "the rollout that this token was made for has ended")
        books = self._books
        spent = (trip for budget in books.budgets if (trip := budget.reached()))
        trip = books.tally.trip or books.line.trip(model) or next(spent, None)
        if trip is None:
            return
        books.tally.alarm.ring(trip)
        status = {"key": 401, "model": 404, "replay": 400}.get(trip.kind, dialect.spent_status)
        raise Refusal(status, trip.message)

    def _note(self, request: web.BaseRequest, visitor: Visitor, refusal: Refusal) -> None:
        """Write a refusal down, unless there were too many already."""
        self.refused += 1
        if self.refused <= REFUSALS_KEPT:
            self._books.refuse(request.method, visitor, refusal)

    @contextmanager
    def _work(self) -> Iterator[None]:
        """Something that must end before the pass is closed."""
        self._busy += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._busy -= 1
            if self._busy == 0:
                self._idle.set()
