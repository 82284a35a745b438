"""The wire under the SDK's connection: messages over the duplex stream of a process in a sandbox.

The SDK keeps request ids, pairs answers with questions and runs what the agent asks for. This transport stands between
it and an agent it need not trust:

- Notifications never reach the SDK. It would validate each with pydantic in a task of its own, without bound: twice the
  time we may spend on an event, and memory that grows with the agent's pace. Here they are handed to a callback
  before the next line is read, so the pipe itself is the queue, and an agent that floods us waits.
- What reaches the SDK is a request with a usable id, or the one answer to a question that is open.
- A request that may need much memory, for a file or because it is long, is not taken in before there is room for it.
- Noise, forged answers and torn lines go to the log; the end of the stream ends the connection.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from benchflow.acp.framing import NOISE_KEPT, LineSplitter, Noise, parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchflow.acp.framing import Json, Message
    from benchflow.sandbox.base import Stream

READ_SIZE = 64 * 1024
"""Bytes taken from the pipe at a time: how much is in memory besides the line being read."""

REQUESTS_LIMIT = 128
"""Requests of an agent that are served at the same time; more are refused with an error."""

HEAVY_LIMIT = 2
"""Requests for files, and requests longer than `HEAVY_SIZE`, that are served at the same time; the next one waits."""

HEAVY_SIZE = 1024 * 1024

BUSY = -32000
"""JSON-RPC error code of a refused request."""


class StreamTransport:
    """Implements `acp.transports.Transport` over a `Stream`.

    `on_notification` is called with each notification, in order, and `log` with each line that is no message. If one of
    them raises, that error is kept in `failure` and the connection ends.
    """

    def __init__(
        self, stream: Stream, on_notification: Callable[[str, object], None], log: Callable[[str], None]
    ) -> None:
        self.failure: Exception | None = None
        self.ended = asyncio.Event()
        self.serving = 0
        """Requests of the agent that wait for our answer."""
        self.last_activity = asyncio.get_running_loop().time()
        """When the agent last sent something, or was last sent what it waited for."""
        self._stream = stream
        self._on_notification = on_notification
        self._log = log
        self._splitter = LineSplitter()
        self._lines: deque[bytes] = deque()
        self._open_questions: set[object] = set()
        self._heavy: Counter[object] = Counter()
        self._lighter = asyncio.Event()
        self._write_lock = asyncio.Lock()

    async def send(self, message: dict[str, Any]) -> None:
        """Write one message.

        Raises ConnectionError when the pipe is broken, except for an answer: nobody is left to wait for it.
        """
        answer = "method" not in message
        if answer:
            self.serving -= 1
            self.last_activity = asyncio.get_running_loop().time()  # it had nothing to send until now
        elif "id" in message:
            self._open_questions.add(message["id"])
        data = json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"
        try:
            async with self._write_lock:
                await self._stream.write(data)
        except OSError as error:
            if not answer:
                raise ConnectionError(f"cannot write to the agent: {error}") from error
        finally:
            if answer and self._heavy[message.get("id")]:
                self._heavy -= Counter([message.get("id")])
                self._lighter.set()

    async def receive(self) -> dict[str, Any] | None:
        """The next message for the SDK, or None at the end of the stream."""
        try:
            while True:
                while self._lines:
                    line = self._lines.popleft()
                    message = self._take(line)
                    if message is not None and await self._admitted(message, len(line)):
                        return message.body
                if self.ended.is_set():
                    return None
                await self._read()
        except Exception as error:  # noqa: BLE001 - the callbacks are the caller's, and so is what they raise
            self.failure = error
            self.ended.set()
            return None

    async def close(self) -> None:
        """Nothing to do: the stream belongs to the session."""

    async def _read(self) -> None:
        try:
            data = await self._stream.stdout.read(READ_SIZE)
        except ConnectionError:
            data = b""
        self.last_activity = asyncio.get_running_loop().time()
        if data:
            self._lines.extend(self._splitter.feed(data))
            await asyncio.sleep(0)  # reading does not yield while data is there, and others must not starve
        else:
            self._lines.append(self._splitter.end())
            self.ended.set()

    def _take(self, line: bytes) -> Message | None:
        """The message of a line if it is one for the SDK; anything else is dealt with here."""
        for found in parse(line):
            if isinstance(found, Noise):
                self._log(found.text)
            elif found.kind == "notification":
                self._on_notification(str(found.body["method"]), found.body.get("params"))
            elif found.kind == "request" or self._is_awaited(found.body):
                return found
            else:
                self._log(f"answer to no question: {json.dumps(found.body)[:NOISE_KEPT]}")
        return None

    def _is_awaited(self, answer: Json) -> bool:
        ident = answer["id"]
        if type(ident) is not int or ident not in self._open_questions:
            return False
        self._open_questions.discard(ident)
        _repair(answer)
        return True

    async def _admitted(self, message: Message, size: int) -> bool:
        """Whether the SDK gets this message; a request beyond the limit is refused instead."""
        if message.kind != "request":
            return True
        self.serving += 1
        if self.serving <= REQUESTS_LIMIT:
            if size > HEAVY_SIZE or str(message.body["method"]).startswith("fs/"):
                await self._make_room(message.body["id"])
            return True
        error = {"code": BUSY, "message": f"more than {REQUESTS_LIMIT} requests at the same time"}
        await self.send({"jsonrpc": "2.0", "id": message.body["id"], "error": error})
        return False

    async def _make_room(self, ident: object) -> None:
        """Wait until a heavy request may be served. Nothing is read meanwhile, so that the agent waits too."""
        while self._heavy.total() >= HEAVY_LIMIT:
            self._lighter.clear()
            await self._lighter.wait()
        self._heavy[ident] += 1


def _repair(answer: Json) -> None:
    """Make an answer a result or an error as JSON-RPC has it: the SDK relies on the shape."""
    error = answer.get("error")
    if error is None:
        answer.pop("error", None)
        answer.setdefault("result", None)
        return
    answer.pop("result", None)
    if not isinstance(error, dict):
        error = {"message": str(error)}
    code = error.get("code")
    message = error.get("message")
    answer["error"] = {
        "code": code if isinstance(code, int) else -32603,
        "message": message if isinstance(message, str) else str(message or "error without a message"),
        "data": error.get("data"),
    }
