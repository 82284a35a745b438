"""The one session we hold with one agent process.

Events reach `on_event` in the order the agent sent them, and all of a turn's events before `prompt` returns. Whatever
happens, `close` ends the process and everything that was started for it. Every failure is raised once, as the error of
the boundary that failed: `ACPError` for what the agent said, `AgentGone` when it died, `AgentTimeout` for its time,
`SandboxGone` when the sandbox died under it, and whatever `on_event` raised as it is.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self

from acp.meta import AGENT_METHODS, CLIENT_METHODS, PROTOCOL_VERSION

from benchflow.acp.choices import choose_mode, choose_model, kept_another
from benchflow.acp.files import Files
from benchflow.acp.guarded import Guarded
from benchflow.acp.link import Link
from benchflow.acp.serve import AgentRequests
from benchflow.acp.terminals import Terminals
from benchflow.acp.usage import usage_of
from benchflow.errors import ACPError, AgentGone, AgentTimeout, BenchflowError
from benchflow.trajectory.events import event
from benchflow.trajectory.updates import UpdateTranslator

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from types import TracebackType

    from benchflow.acp.choices import Choice, ModelWay
    from benchflow.acp.permission import PermissionPolicy
    from benchflow.sandbox.base import Sandbox, Stream
    from benchflow.trajectory.events import Event

IDLE_TIMEOUT = 1800.0
"""Seconds an agent may send nothing at all during a turn. While it waits for an answer of ours it is not idle."""

REQUEST_TIMEOUT = 60.0
"""Seconds an agent may take to answer a request that starts no turn, such as the choice of a model."""

CANCEL_GRACE = 10.0
"""Seconds an agent gets to end a cancelled turn before it is killed."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What a session is opened with.

    Files and terminals are served to any agent that asks, as `user`; offering them makes some agents replace their own
    tools by ours, which changes what is measured, so it is said for each agent. `env` is what terminals start with.
    `mcp_servers` are objects as the protocol has them.
    """

    cwd: str
    user: str | int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    mcp_servers: Sequence[Mapping[str, object]] = ()
    permission: PermissionPolicy = "allow"
    offer_files: bool = False
    offer_terminals: bool = False


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a turn ended: the agent's stop reason, and its own count of tokens where it gives one."""

    stop_reason: str
    usage: Mapping[str, int] | None = None


class Session:
    """A live session, made by `connect`. As an async context manager it closes itself.

    `id` is the agent's name for it, `agent_info` what the agent says of itself, `offer` its reply to `session/new`.
    """

    def __init__(
        self,
        stream: Stream,
        sandbox: Sandbox,
        options: SessionOptions,
        *,
        on_event: Callable[[Event], None],
        log: Callable[[str], None],
    ) -> None:
        self.id = ""
        self.agent_info: Mapping[str, object] = {}
        self.offer: Mapping[str, object] = {}
        self._options = options
        self._record = Guarded(on_event)
        self._log = Guarded(log)
        self._translator = UpdateTranslator()
        self._terminals = Terminals(sandbox, self._record, user=options.user, env=options.env, cwd=options.cwd)
        self._requests = AgentRequests(
            Files(sandbox, self._record, user=options.user, cwd=options.cwd),
            self._terminals,
            policy=options.permission,
            translator=self._translator,
            record=self._record,
        )
        self._link = Link(stream, serve=self._requests, on_notification=self._on_notification, log=self._log)

    @property
    def stderr(self) -> str:
        """The end of the agent's standard error."""
        return self._link.stderr

    async def open(self) -> None:
        """Agree on the protocol and open the session. Called once, by `connect`, which bounds its time."""
        offered = {
            "fs": {"readTextFile": self._options.offer_files, "writeTextFile": self._options.offer_files},
            "terminal": self._options.offer_terminals,
        }
        asked = {
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": offered,
            "clientInfo": {"name": "benchflow", "title": "BenchFlow", "version": version("benchflow")},
        }
        reply = await self._call("initialize", asked)
        if reply.get("protocolVersion") != PROTOCOL_VERSION:
            spoken = reply.get("protocolVersion")
            message = f"the agent speaks version {spoken} of the Agent Client Protocol, we speak {PROTOCOL_VERSION}"
            raise ACPError(message, stderr=self.stderr, hint="use a release of the agent that speaks it")
        info = reply.get("agentInfo")
        self.agent_info = info if isinstance(info, dict) else {}
        servers = [dict(server) for server in self._options.mcp_servers]
        self.offer = await self._call("session_new", {"cwd": self._options.cwd, "mcpServers": servers})
        if not isinstance(self.offer.get("sessionId"), str):
            raise ACPError("the agent answered session/new without a session id", stderr=self.stderr)
        self.id = str(self.offer["sessionId"])

    async def set_model(self, model: str, way: ModelWay = "auto") -> str | None:
        """Choose a model; returns the agent's own id of it, or None when this agent is not asked (see `ModelWay`).

        Raises ACPError, with the models the agent offers, when it refuses or keeps another one.
        """
        choice = choose_model(self.offer, model, way)
        if choice is None:
            return None
        await self._choose("model", choice)
        return choice.value

    async def set_mode(self, mode: str) -> None:
        """Choose a mode, such as one that asks for no permission. Raises ACPError with the modes the agent offers."""
        await self._choose("mode", choose_mode(self.offer, mode))

    async def prompt(
        self,
        prompt: str | Sequence[Mapping[str, object]],
        *,
        timeout: float | None = None,
        idle_timeout: float | None = IDLE_TIMEOUT,
        until: Callable[[], Coroutine[None, None, str]] | None = None,
    ) -> TurnResult:
        """One turn: a text, or content blocks as the protocol has them, and the agent works until it stops.

        When `timeout` seconds are over, nothing came for `idle_timeout` seconds, or `until` returns with a reason, the
        turn is cancelled; an agent that does not end it within `CANCEL_GRACE` is killed. Either way AgentTimeout is
        raised and the events so far stand. Cancelling this call itself leaves the agent in its turn: close the session
        then.
        """
        blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else [dict(block) for block in prompt]
        texts = [str(block["text"]) for block in blocks if block.get("type") == "text"]
        self._record(event("prompt", text="\n".join(texts), content=None if isinstance(prompt, str) else blocks))
        self._requests.cancelling = False
        try:
            reply = await self._turn(blocks, timeout, idle_timeout, until)
        except BenchflowError as error:
            self._record(event("error", kind=type(error).__name__, message=error.message))
            raise
        finally:
            self._record.check()
            self._log.check()
        return reply

    async def cancel(self) -> None:
        """Ask the agent to end the turn it is in; `prompt` then returns with the stop reason `cancelled`."""
        self._requests.cancelling = True
        await self._link.notify(AGENT_METHODS["session_cancel"], {"sessionId": self.id})

    async def close(self) -> None:
        """End the process and everything that was started for it. Idempotent."""
        try:
            await self._link.close()
        finally:
            await self._terminals.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _call(self, method: str, params: Mapping[str, object]) -> dict[str, object]:
        """The result of a request, which must be an object; no result at all counts as an empty one."""
        reply = await self._link.call(AGENT_METHODS.get(method, method), params)
        if reply is None:
            return {}
        if not isinstance(reply, dict):
            raise ACPError(f"the agent answered {method} with {reply!r:.200}", stderr=self.stderr)
        return reply

    async def _choose(self, what: str, choice: Choice) -> None:
        hint = f"it offers: {', '.join(choice.offered)}" if choice.offered else None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                reply = await self._call(choice.method, {"sessionId": self.id, **choice.params})
        except ACPError as error:
            message = f"cannot choose the {what} {choice.value!r}: {error.message}"
            raise ACPError(message, code=error.code, data=error.data, hint=hint) from error
        except TimeoutError as error:
            message = f"the agent did not answer {choice.method} within {REQUEST_TIMEOUT:g} s"
            raise AgentTimeout(message, stderr=self.stderr) from error
        kept = kept_another(reply, choice)
        if kept is not None:
            message = f"the agent was asked for the {what} {choice.value!r} and uses {kept!r}"
            raise ACPError(message, stderr=self.stderr, hint=hint)

    async def _turn(
        self,
        blocks: Sequence[Mapping[str, object]],
        timeout: float | None,
        idle_timeout: float | None,
        until: Callable[[], Coroutine[None, None, str]] | None,
    ) -> TurnResult:
        turn = asyncio.create_task(self._call("session_prompt", {"sessionId": self.id, "prompt": blocks}))
        over = asyncio.create_task(until()) if until else None
        try:
            late = await self._until_late(turn, over, timeout, idle_timeout)
            if late is not None:
                await self._give_up(turn)
                raise AgentTimeout(late, stderr=self.stderr)
            return self._ended(turn.result())
        finally:
            tasks: list[asyncio.Task[Any]] = [turn] if over is None else [turn, over]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_late(
        self,
        turn: asyncio.Task[dict[str, object]],
        over: asyncio.Task[str] | None,
        timeout: float | None,
        idle_timeout: float | None,
    ) -> str | None:
        """Wait for the turn to end, or for its time to be over: then says which."""
        tasks: set[asyncio.Task[Any]] = {turn} if over is None else {turn, over}
        clock = asyncio.get_running_loop().time
        started = clock()
        while True:
            ends = math.inf if timeout is None else started + timeout
            idles = math.inf if idle_timeout is None else max(started, self._link.last_activity) + idle_timeout
            if clock() >= ends:
                return f"the agent did not end its turn within {timeout:g} s"
            if clock() >= idles:
                return f"the agent sent nothing for {idle_timeout:g} s"
            wait = min(ends, idles) - clock()
            limit = None if wait == math.inf else wait
            done, _ = await asyncio.wait(tasks, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if turn in done:
                return None
            if over in done:
                return over.result()

    async def _give_up(self, turn: asyncio.Task[dict[str, object]]) -> None:
        """Cancel the turn and, if that does not end it, the agent."""
        try:
            async with asyncio.timeout(CANCEL_GRACE):
                await self.cancel()
                await asyncio.wait({turn})
            self._ended(turn.result())
        except (TimeoutError, AgentGone):
            self._record(event("note", about="agent killed", data="it did not end the turn that was cancelled"))
            await self._link.kill()
        except ACPError as error:
            self._record(event("note", about="error reply to a cancelled turn", data=error.message))

    def _ended(self, reply: Mapping[str, object]) -> TurnResult:
        reason = reply.get("stopReason")
        if not isinstance(reason, str):
            raise ACPError("the agent ended its turn without a stop reason", stderr=self.stderr)
        usage = usage_of(reply)
        if usage is not None:
            self._record(event("usage", source="reply", **usage))
        self._record(event("stop", reason=reason))
        return TurnResult(reason, usage)

    def _on_notification(self, method: str, params: object) -> None:
        if method == CLIENT_METHODS["session_update"] and isinstance(params, dict):
            other = params.get("sessionId")
            for one in self._translator.translate(params.get("update")):
                self._record(one if other == self.id or not self.id else one | {"session_id": other})
        else:
            self._record(event("note", about=method, data=params))
        self._record.check()
