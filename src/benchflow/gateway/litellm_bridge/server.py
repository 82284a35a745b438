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

from benchflow.gateway.dialects.table import find_route, normal_path
from benchflow.gateway.headers import tokens_of
from benchflow.gateway.litellm_bridge.calls import arguments, ask, pieces, whole
from benchflow.gateway.litellm_bridge.fence import Fence
from benchflow.gateway.refusal import Refusal

if TYPE_CHECKING:
    from benchflow.gateway.dialects.base import Route

UPSTREAM = "x-benchflow-upstream"
"""The header that says which provider to ask: {"prefix": LiteLLM's name of its kind, "base_url": where it is}.

With {"parameters": what else LiteLLM is given} these may hold the key; {"hosts": where else it must connect to}.
"""

READY = b"ready\n"
"""What the process writes to its standard output when it can be asked."""

BODY_LIMIT = 256 * 1024 * 1024


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
            given = self._given(request, route, body)
            answer = await ask(self._litellm, route.dialect.name, given, stream=stream)
        except Refusal as refusal:
            return web.json_response(route.dialect.error(refusal.status, refusal.message), status=refusal.status)
        except Exception as error:  # noqa: BLE001 - whatever LiteLLM raises is an answer to the client
            return self._failed(route, error)
        if not stream:
            return web.Response(body=whole(answer), content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for piece in pieces(route.dialect.name, answer):
            await response.write(piece)
        return response

    def _given(self, request: web.Request, route: Route, body: dict[str, Any]) -> dict[str, Any]:
        upstream = json.loads(request.headers[UPSTREAM])
        for url in (upstream["base_url"], *upstream.get("hosts", ())):
            self._fence.allow(url)
        model = route.model or str(body.get("model", ""))
        (key,) = tokens_of(request.headers, "")
        parameters = upstream.get("parameters", {})
        return {
            **arguments(route.dialect.name, body, model),
            "model": f"{upstream['prefix']}/{model}",
            "api_base": upstream["base_url"],
            **({} if key in parameters.values() else {"api_key": key}),
            "max_retries": 0,
            "num_retries": 0,
            **parameters,
        }

    def _failed(self, route: Route, error: Exception) -> web.Response:
        found = getattr(error, "status_code", None)
        status = found if isinstance(found, int) and 400 <= found < 600 else 500
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        kept = {name: headers[name] for name in ("retry-after", "retry-after-ms") if name in headers}
        return web.json_response(route.dialect.error(status, str(error)), status=status, headers=kept)


def load() -> Any:
    """LiteLLM, quiet, and with everything off that is not translation."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    litellm: Any = importlib.import_module("litellm")
    importlib.import_module("litellm.google_genai")
    litellm.telemetry = False
    litellm.drop_params = True
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
