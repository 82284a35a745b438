"""A model on loopback that follows a script, so that real agents run end to end without a key and without a network.

It speaks four dialects, streaming and not: Anthropic Messages, OpenAI Chat, OpenAI Responses and Gemini; lists models
and counts tokens the way each of them does. What it answers is said in `benchflow.testing.model.script`; tool calls use
the tools that the agent itself offers. Requests that offer no such tools, by which agents ask for titles and summaries,
get a short text and take nothing from the script, unless the script has no tool calls at all.

    async with ModelServer([Run("echo hi > hello.txt"), Say("done")]) as server:
        ...  # point an agent at server.url
    assert "hello" in server.requests[0].text

By hand: `python -m benchflow.testing.model_server --port 8788 --run "echo hi > hello.txt" --say done`
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from aiohttp import web

from benchflow.testing.model.routes import models_list, route_of
from benchflow.testing.model.script import END, Fail, Run, Say, Step, Think, Use, Wait, Write, answers, position
from benchflow.testing.model.tools import call_for, is_usable, sample
from benchflow.testing.model.wire import Completion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from benchflow.testing.model.routes import Route
    from benchflow.testing.model.script import Answer
    from benchflow.testing.model.wire import Json, Question

__all__ = ["END", "Fail", "ModelServer", "Request", "Run", "Say", "Step", "Think", "Use", "Wait", "Write"]

HELPER_TEXT = "Scripted title"
"""What requests outside the script are answered with."""

REQUESTS_KEPT = 10_000
BODY_LIMIT = 256 * 1024 * 1024
SHUTDOWN_SECONDS = 0.1
"""How long open requests may go on when the server stops."""

_RETRY_AFTER = (429, 503, 529)


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived. `kind` says what was made of it, `answer` what the model did, in short."""

    kind: Literal["turn", "helper", "count", "models", "other"]
    dialect: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: Json = field(default_factory=dict)
    answer: str = ""

    @property
    def text(self) -> str:
        """Everything that was sent, as one string to look things up in."""
        return json.dumps(self.body, ensure_ascii=False)


class ModelServer:
    """Serves from `async with` to its end, on a free port unless one is given.

    `script` is for every conversation, except those in whose prompts a key of `scripts` appears. A `Fail` is given once
    per conversation, which for this purpose is told by its credential and its first prompt. `latency` is added to
    every answer.
    """

    def __init__(
        self,
        script: Sequence[Step] = (),
        *,
        scripts: Mapping[str, Sequence[Step]] | None = None,
        latency: float = 0.0,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.requests: deque[Request] = deque(maxlen=REQUESTS_KEPT)
        self._default = answers(script)
        self._marked = {marker: answers(steps) for marker, steps in (scripts or {}).items()}
        self._latency = latency
        self._host = host
        self._port = port
        self._ids = itertools.count(1)
        self._failed: Counter[tuple[str, str, int]] = Counter()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The base URL, without a path and without a slash at its end."""
        return f"http://{self._host}:{self._port}"

    @property
    def turns(self) -> list[Request]:
        """The requests that the script answered."""
        return [request for request in self.requests if request.kind == "turn"]

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await _json_body(request)
        route = route_of(request.path) if request.method == "POST" else None
        if request.headers.get("Upgrade", "").lower() == "websocket":
            self._note(request, body, "other", "426")
            return web.Response(status=426, text="there is no websocket here: use plain HTTP")
        if route is None:
            return self._other(request, body)
        if route.count:
            self._note(request, body, "count", "", route)
            return web.json_response(route.dialect.count())
        return await self._answer(request, body, route)

    async def _answer(self, request: web.Request, body: Json, route: Route) -> web.StreamResponse:
        in_path: Json = {"model": route.model, "stream": route.stream} if route.model else {}
        question = route.dialect.read({**body, **in_path})
        script = self._script_of(question)
        number = position(script, question.history)
        answer = script[number]
        done = self._complete(question, script, answer)
        if done is None:
            self._note(request, body, "helper", "helper", route)
            helper = Completion(str(next(self._ids)), question.model, _helper_text(question), usage=question.usage)
            return await self._send(request, route, question, helper, 0.0)
        await asyncio.sleep(self._latency + answer.wait)
        fail = self._fail(request, question, number, answer)
        if fail is not None:
            self._note(request, body, "turn", f"Fail {fail.status}", route)
            headers = {"Retry-After": f"{fail.retry_after:g}"} if fail.status in _RETRY_AFTER else {}
            error = route.dialect.error(fail.status, f"scripted error {fail.status}")
            return web.json_response(error, status=fail.status, headers=headers)
        self._note(request, body, "turn", f"{number}: {type(answer.action).__name__}", route)
        pause = answer.action.seconds if isinstance(answer.action, Say) else 0.0
        return await self._send(request, route, question, done, pause)

    def _script_of(self, question: Question) -> list[Answer]:
        prompts = "\n".join(question.prompts)
        return next((script for marker, script in self._marked.items() if marker in prompts), self._default)

    def _complete(self, question: Question, script: Sequence[Answer], answer: Answer) -> Completion | None:
        """The answer in the terms of this request, or None when it is not one for the script."""
        needs_tools = any(not isinstance(one.action, Say) for one in script)
        if needs_tools and not is_usable(question.tools):
            return None
        ident = str(next(self._ids))
        thought = answer.thought if question.thinking else ""
        action = answer.action
        call = None if isinstance(action, Say) else call_for(action, question.tools, ident)
        if call is None and not isinstance(action, Say):
            return None
        return Completion(ident, question.model, action.text, thought, call, question.usage)

    def _fail(self, request: web.Request, question: Question, number: int, answer: Answer) -> Fail | None:
        """The error that is due at this place of this conversation, if one is left."""
        credential = "".join(request.headers.get(name, "") for name in ("Authorization", "x-api-key", "x-goog-api-key"))
        key = (credential, next(iter(question.prompts), ""), number)
        given = self._failed[key]
        if given >= len(answer.fails):
            return None
        self._failed[key] += 1
        return answer.fails[given]

    async def _send(
        self, request: web.Request, route: Route, question: Question, done: Completion, seconds: float
    ) -> web.StreamResponse:
        events = list(route.dialect.stream(done)) if question.stream else []
        if not question.stream:
            await asyncio.sleep(seconds)
            return web.json_response(route.dialect.whole(done))
        if route.model and request.query.get("alt") != "sse":
            return web.json_response([event.data for event in events])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        pause = seconds / max(1, sum(event.paced for event in events))
        with suppress(ConnectionError):  # a client that leaves in the middle is its own affair
            for event in events:
                if event.paced and pause:
                    await asyncio.sleep(pause)
                data = event.data if isinstance(event.data, str) else json.dumps(event.data)
                head = f"event: {event.event}\n" if event.event else ""
                await response.write(f"{head}data: {data}\n\n".encode())
            await response.write_eof()
        return response

    def _other(self, request: web.Request, body: Json) -> web.Response:
        listed = models_list(request.path) if request.method == "GET" else None
        if listed is not None:
            self._note(request, body, "models", "models")
            return web.json_response(listed)
        self._note(request, body, "other", "")
        if request.method in ("GET", "HEAD") and request.path in ("/", "/health"):
            return web.json_response({"ok": True})
        error = {"message": f"no route {request.method} {request.path}", "type": "not_found_error", "code": 404}
        return web.json_response({"error": error}, status=404)

    def _note(
        self,
        request: web.Request,
        body: Json,
        kind: Literal["turn", "helper", "count", "models", "other"],
        answer: str,
        route: Route | None = None,
    ) -> None:
        dialect = route.dialect.name if route else ""
        self.requests.append(
            Request(kind, dialect, request.method, request.path_qs, dict(request.headers), body, answer)
        )


async def _json_body(request: web.Request) -> Json:
    try:
        body = json.loads(await request.read() or b"{}")
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _helper_text(question: Question) -> str:
    return HELPER_TEXT if question.json_schema is None else json.dumps(sample(question.json_schema))


def _write_step(text: str) -> Write:
    path, _, content = text.partition("=")
    return Write(path, content)


async def _serve(server: ModelServer) -> None:
    async with server:
        print(f"scripted model at {server.url}", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve until interrupted; the script is given by options, in their order."""
    parser = argparse.ArgumentParser(prog="python -m benchflow.testing.model_server", description=main.__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8788)
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS")
    steps = {
        "say": ("TEXT", Say),
        "run": ("COMMAND", Run),
        "write": ("PATH=TEXT", _write_step),
        "think": ("TEXT", Think),
        "wait": ("SECONDS", lambda text: Wait(float(text))),
        "fail": ("STATUS", lambda text: Fail(int(text))),
    }
    for name, (metavar, make) in steps.items():
        parser.add_argument(f"--{name}", dest="script", action="append", type=make, metavar=metavar)  # type: ignore[arg-type]
    given = parser.parse_args()
    server = ModelServer(given.script or [], latency=given.latency, host=given.host, port=given.port)
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(server))


if __name__ == "__main__":
    main()
