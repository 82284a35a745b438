"""The process in which LiteLLM runs: a server on a private Unix socket, that ends with its parent.

    python -m benchflow.gateway.litellm_bridge.server SOCKET

A request is one of a dialect's own, with the provider's key where the dialect has it and the provider itself in the
header `UPSTREAM`. The process keeps nothing between requests and knows no other key.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from aiohttp import web

from benchflow.gateway.dialects.anthropic import status_of
from benchflow.gateway.dialects.base import text
from benchflow.gateway.dialects.table import find_route, normal_path
from benchflow.gateway.headers import tokens_of
from benchflow.gateway.litellm_bridge.bare import keep_no_books, raise_errors
from benchflow.gateway.litellm_bridge.calls import arguments, ask, is_geminis_own, pieces, whole
from benchflow.gateway.litellm_bridge.fence import Fence
from benchflow.gateway.refusal import Refusal
from benchflow.gateway.sse import SseParser, json_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchflow.gateway.dialects.base import Json, Route

UPSTREAM = "x-benchflow-upstream"
"""The header that says which provider to ask: {"prefix": LiteLLM's name of its kind, "base_url": where it is}.

With {"parameters": what else LiteLLM is given} these may hold the key; {"hosts": where else it must connect to}.
"""

READY = b"ready\n"
"""What the process writes to its standard output when it can be asked."""

BODY_LIMIT = 256 * 1024 * 1024

_OPENING = {
    "message_start", "content_block_start",
    "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
}  # fmt: skip
"""Events that have nothing in them yet."""


_WAITS = ("retry-after", "retry-after-ms")


class StreamError(Exception):
    """A stream that has nothing but an error in it."""

    def __init__(self, error: Json) -> None:
        super().__init__(text(error, "error", "message"))
        self.status_code = status_of(error)


class Bridge:
    """Answers requests by asking LiteLLM."""

    def __init__(self, litellm: Any, fence: Fence) -> None:
        self._litellm = litellm
        self._fence = fence

    async def handle(self, request: web.Request) -> web.StreamResponse:
        route = find_route(request.method, normal_path(request.raw_path), ())
        if route is None or route.operation != "generate":
            return web.Response(status=404)
        try:
            body = await request.json()
            stream = bool(body.get("stream")) if route.stream is None else route.stream
            upstream = json.loads(request.headers[UPSTREAM])
            own = is_geminis_own(route.dialect.name, upstream["prefix"], route.model)
            given = self._given(request, route, body, upstream, own=own)
            answer = await ask(self._litellm, route.dialect.name, given, stream=stream, own=own)
            if not stream:
                return web.Response(body=whole(answer), content_type="application/json")
            rest = pieces(route.dialect.name, answer)
            opening = await _opening(rest)
        except Refusal as refusal:
            return web.json_response(route.dialect.error(refusal.status, refusal.message), status=refusal.status)
        except Exception as error:  # noqa: BLE001 - whatever LiteLLM raises is an answer to the client
            return _failed(route, error)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(opening)
        async for piece in _to_its_end(route, rest):
            await response.write(piece)
        return response

    def _given(
        self, request: web.Request, route: Route, body: dict[str, Any], upstream: dict[str, Any], *, own: bool
    ) -> dict[str, Any]:
        for url in (upstream["base_url"], *upstream.get("hosts", ())):
            self._fence.allow(url)
        model = route.model or str(body.get("model", ""))
        (key,) = tokens_of(request.headers, "")
        parameters = upstream.get("parameters", {})
        return {
            **arguments(route.dialect.name, body, model, own=own),
            "model": f"{upstream['prefix']}/{model}",
            "api_base": upstream["base_url"],
            **({} if key in parameters.values() else {"api_key": key}),
            "max_retries": 0,
            "num_retries": 0,
            **parameters,
        }


def _failed(route: Route, error: Exception) -> web.Response:
    return web.json_response(_said(route, error), status=_status(error), headers=_asked_to_wait(error))


def _asked_to_wait(error: BaseException | None) -> dict[str, str]:
    """The provider's headers that say when to come back, with the error or with what it was made of."""
    while error is not None:
        places = (
            getattr(getattr(error, "response", None), "headers", None),
            getattr(error, "litellm_response_headers", None),
            getattr(error, "headers", None),
        )
        for headers in places:
            kept = {name: str(headers[name]) for name in _WAITS if headers and name in headers}
            if kept:
                return kept
        error = error.__cause__ or error.__context__
    return {}


async def _opening(stream: AsyncIterator[bytes]) -> bytes:
    """A stream up to its first event with something in it: before, LiteLLM may not have asked the provider yet.

    Raises StreamError when that is an error.
    """
    begun, parser = b"", SseParser()
    async for piece in stream:
        begun += piece
        for event in parser.feed(piece):
            if event.name == "error":
                raise StreamError(json.loads(event.data))
            if event.name not in _OPENING:
                return begun
    return begun


async def _to_its_end(route: Route, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What is left of a stream; one that fails ends with an event that says so, and not as complete."""
    try:
        async for piece in rest:
            yield piece
    except Exception as error:  # noqa: BLE001 - whatever LiteLLM raises is an answer to the client
        yield json_event(_said(route, error), "error").to_bytes()


def _said(route: Route, error: Exception) -> Json:
    """An error in the words of the dialect, without the places in LiteLLM's source where it happened."""
    return route.dialect.error(_status(error), str(error).partition("\nTraceback ")[0])


def _status(error: Exception) -> int:
    found = getattr(error, "status_code", None)
    return found if isinstance(found, int) and 400 <= found < 600 else 500


def load() -> Any:
    """LiteLLM, quiet, and with everything off that is not translation."""
    keep_no_books()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    litellm: Any = importlib.import_module("litellm")
    importlib.import_module("litellm.google_genai")
    raise_errors()
    litellm.telemetry = False
    litellm.drop_params = True
    litellm.modify_params = True  # thoughts that a dialect cannot repeat are not demanded by the next
    litellm.suppress_debug_info = True
    return litellm


async def serve(path: str) -> None:
    """Serve on `path` until standard input ends."""
    fence = Fence()
    bridge = Bridge(load(), fence)
    fence.raise_()
    app = web.Application(client_max_size=BODY_LIMIT)
    app.router.add_route("*", "/{path:.*}", bridge.handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    os.write(sys.stdout.fileno(), READY)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
