"""One exchange under way: from a client's request, which was examined, to the end of its answer and its line in the
ledger.

The client sees the provider's bytes. It does not see that a provider was busy, as long as that passes; it does not see
what a provider says about our key. However an exchange ends, it is charged and written down exactly once.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from aiohttp import ClientConnectionResetError, web
from multidict import CIMultiDict

from benchflow.gateway.alarm import Trip
from benchflow.gateway.capture import Capture
from benchflow.gateway.fault import read_fault
from benchflow.gateway.headers import recorded, to_client
from benchflow.gateway.ledger import Exchange, now
from benchflow.gateway.pace import asked_wait
from benchflow.gateway.refusal import Refusal
from benchflow.gateway.upstream import UpstreamError
from benchflow.gateway.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from benchflow.gateway.books import Books
    from benchflow.gateway.fault import Fault
    from benchflow.gateway.headers import Header
    from benchflow.gateway.upstream import Call, Reply, Upstream
    from benchflow.gateway.verdict import Verdict

RETRY_SECONDS = 240.0
"""Seconds that one request is kept waiting because its provider is busy; then the client hears of it."""

CONNECT_ATTEMPTS = 4
"""How often a provider that cannot be reached is tried."""

CONNECT_WAIT = 0.5
"""Seconds before it is tried again; doubled each time."""

RESPONSE_LIMIT = 512 * 1024 * 1024
"""Bytes that one answer may have."""


class ClientLeft(Exception):
    """The client hung up."""


class Flight:
    """One exchange. `answer` once, then `land` once, whatever happened."""

    def __init__(self, call: Call, upstream: Upstream, books: Books) -> None:
        self._call = call
        self._upstream = upstream
        self._books = books
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._sent = False
        self._capture: Capture | None = None
        self._response: web.StreamResponse | None = None
        question = call.question
        self.record = Exchange(
            ts=now(),
            id=books.ledger.next_id(),
            dialect=call.route.dialect.name,
            operation=call.route.operation,
            method=call.method,
            path=f"/{call.route.tail}",
            provider=upstream.name,
            model=question.model,
            stream=question.stream,
            replayed=upstream.free,
            request={"headers": recorded(call.headers), "bytes": len(question.raw)},
        )
        if books.ledger.room(len(question.raw)):
            self.record.request["body"] = question.document

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Ask the provider and pass its answer on. Cancelled when the client leaves."""
        try:
            return await self._attempts(request)
        except Refusal as refusal:
            self.record.ended, self.record.error = "refused", refusal.message
            if refusal.trip:
                self._books.stop(refusal.trip)
            return self._own(refusal.status, refusal.message)
        except UpstreamError as error:
            self.record.error = str(error)
            if self._response is None:
                self.record.ended = "failed"
                return self._own(error.status, str(error))
            # The client must see that this was not the end: the connection is cut without the mark of one.
            self.record.ended = "broken"
            request.protocol.force_close()
            return self._response
        except ClientLeft:
            self.record.ended = self._left()
            assert self._response is not None
            request.protocol.force_close()
            return self._response
        except asyncio.CancelledError:
            self.record.ended = self._left()
            raise

    async def _attempts(self, request: web.BaseRequest) -> web.StreamResponse:
        failures = 0
        while True:
            async with AsyncExitStack() as stack:
                await self._turn(stack)
                began, self._sent, self.record.status = self._loop.time(), True, None
                try:
                    reply = await stack.enter_async_context(self._upstream.send(self._call))
                except UpstreamError as error:
                    failures += 1
                    if not error.unsent or failures >= CONNECT_ATTEMPTS:
                        self._books.tally.starved = str(error) if error.unsent else ""
                        raise
                    self.record.retries.append({"error": str(error)})
                    wait = CONNECT_WAIT * 2 ** (failures - 1)
                else:
                    self.record.status = reply.status
                    if reply.status < 300:
                        return await self._pass_on(request, reply)
                    answer, wait = await self._error(reply, began)
                    if answer is not None:
                        return answer
            self._sent = False
            self.record.waited += wait
            await asyncio.sleep(wait)

    async def _turn(self, stack: AsyncExitStack) -> None:
        left = RETRY_SECONDS - (self._loop.time() - self._began)
        asked = self._loop.time()
        try:
            async with asyncio.timeout(max(0.0, left)):
                await stack.enter_async_context(self._books.line.pace.turn())
        except TimeoutError:
            self._books.tally.starved = f"{self._upstream.name} is busy, and was for {RETRY_SECONDS:g} s"
            raise Refusal(429, self._books.tally.starved) from None
        finally:
            self.record.waited += self._loop.time() - asked

    async def _error(self, reply: Reply, began: float) -> tuple[web.Response | None, float]:
        """The answer to an error of the provider, or None and the seconds to wait before the next attempt."""
        account, model = self._books.account, self._call.question.model
        fault = await read_fault(reply, account.secrets)
        configured = bool(model) and model == account.model
        verdict = judge(fault.status, fault.headers, fault.error, model=model, configured=configured)
        if verdict == "busy":
            asked = asked_wait(fault.headers, fault.body)
            wait = self._books.line.pace.slow_down(asked, began)
            if self._elapsed() + wait <= RETRY_SECONDS:
                self.record.retries.append({"status": fault.status, "retry_after": asked})
                return None, 0.0  # the pace lets nobody through before the time
            self._books.tally.starved = f"{self._upstream.name} is too busy (HTTP {fault.status})"
        self._capture = Capture(self._call.route.dialect, fault.headers)
        self._capture.feed(fault.raw)
        self.record.ended = "complete"
        if verdict == "redirect":
            raise UpstreamError(f"{self._upstream.name} answered with a redirect, which is not followed")
        if trip := self._fatal(verdict, fault):
            self.record.error = trip.message
            status = self._call.route.dialect.spent_status if trip.kind == "billing" else fault.status
            return self._own(status, trip.message, keep_status=True), 0.0
        headers = _headers(fault.headers.items())
        return web.Response(status=fault.status, body=fault.raw, headers=headers), 0.0

    def _fatal(self, verdict: Verdict, fault: Fault) -> Trip | None:
        """Stop everything on this account, if that is what the verdict means."""
        name, model = self._upstream.name, self._call.question.model
        status, words = fault.status, fault.error.message
        match verdict:
            case "key":
                trip = Trip("key", f"{name} refused the key (HTTP {status}): {words}")
            case "billing":
                trip = Trip("billing", f"{name} takes no more requests on this account (HTTP {status}): {words}")
            case "model":
                trip = Trip("model", f"{name} does not have the model {model!r} (HTTP {status}): {words}")
            case _:
                return None
        if not self._books.line.condemn(trip, model, certain=status == 401 or verdict == "billing"):
            return None
        self._books.stop(trip)
        return trip

    async def _pass_on(self, request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
        """Stream an answer to the client, at the client's speed."""
        books = self._books
        books.line.pace.went_well()
        books.line.worked(self._call.question.model)
        books.tally.starved = ""
        self._capture = capture = Capture(self._call.route.dialect, CIMultiDict(reply.headers))
        response = web.StreamResponse(status=reply.status, headers=_headers(reply.headers))
        self._response = response
        await _to_client(response.prepare(request))
        async for chunk in reply.chunks:
            if self.record.first_byte is None:
                self.record.first_byte = self._elapsed()
            await _to_client(response.write(chunk))
            capture.feed(chunk)
            if capture.size > RESPONSE_LIMIT:
                raise UpstreamError(f"the answer has more than {RESPONSE_LIMIT} bytes")
        await _to_client(response.write_eof())
        self.record.ended = "complete" if capture.ended or not self._call.question.stream else "broken"
        return response

    def _left(self) -> str:
        """How an exchange ended whose client hung up: some do as soon as they have read the last event."""
        return "complete" if self._capture and self._capture.said_end else "left"

    def _own(self, status: int, message: str, *, keep_status: bool = False) -> web.Response:
        if not keep_status:
            self.record.status = status
        return web.json_response(self._call.route.dialect.error(status, message), status=status)

    def land(self, *, closed: bool) -> None:
        """Charge the exchange and write it down; `closed` says that its rollout has ended. Never raises."""
        if closed and self.record.ended == "left":
            self.record.ended = "closed"
        self.record.latency = self._elapsed()
        self.record.waited = round(self.record.waited, 6)
        self._books.enter(self.record, self._call.route, self._capture, sent=self._sent)

    def _elapsed(self) -> float:
        return round(self._loop.time() - self._began, 6)


def _headers(given: Iterable[Header]) -> CIMultiDict[str]:
    return CIMultiDict([*to_client(given), ("Server", "benchflow")])


async def _to_client(writing: Awaitable[object]) -> None:
    try:
        await writing
    except (ConnectionError, ClientConnectionResetError):
        raise ClientLeft from None
