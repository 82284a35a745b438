"""The agents that are alive in one sandbox: one process and one session per role, opened at the role's first turn.

`clear` ends them all; nothing of an agent's process outlives it but files. A server that an agent started as its
solution may be spared until the verifier has asked it.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from benchflow.acp.connect import connect_with_retry
from benchflow.acp.session import SessionOptions
from benchflow.agent.launch import SERVICE_PORT, LaunchPlan, plan_launch
from benchflow.agent.spec import placeholders
from benchflow.errors import AgentTimeout, SandboxError
from benchflow.rollout.account import write_home
from benchflow.rollout.cast import workplace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from benchflow.acp.session import Session
    from benchflow.agent.bundle import Bundle
    from benchflow.agent.spec import AgentSpec
    from benchflow.rollout.account import Account
    from benchflow.rollout.cast import Cast
    from benchflow.rollout.plan import Player
    from benchflow.rollout.skills import Skills
    from benchflow.rollout.wire import Wire
    from benchflow.sandbox.base import Sandbox, Stream
    from benchflow.trajectory.events import Event

SERVICE_TIMEOUT = 300.0
"""Seconds that a service which an agent needs beside it may take to listen."""

SERVICE_LOG = "service.log"
"""Where, in its user's home, such a service says what it does."""

SERVICE_LOOK = 0.2
"""Seconds between looks whether it does. The kernel has no event for another process's socket."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every agent on the stage shares: where it is, as whom, and where its words go."""

    sandbox: Sandbox
    cast: Cast
    wire: Wire
    on_event: Callable[[Event], None]
    log: Callable[[str, str], None]
    note: Callable[[str], None]
    skills: Skills
    mcp_servers: Sequence[Mapping[str, object]] = ()
    env: Mapping[str, str] | None = None


class Stage:
    """Opens sessions on demand and ends them together."""

    def __init__(self, around: Surroundings, bundles: Mapping[str, Bundle]) -> None:
        self._around = around
        self._bundles = bundles
        self._sessions: dict[str, Session] = {}
        self._streams: list[Stream] = []

    async def session(self, player: Player) -> Session:
        """The role's session, opened now if this is its first turn since `clear`.

        Raises AgentError and its kin when the agent cannot be reached, SandboxError when the sandbox fails.
        """
        name = player.role.name
        if name not in self._sessions:
            self._sessions[name] = await self._open(player)
        return self._sessions[name]

    async def clear(self, *, spare_children: bool = False) -> None:
        """End every session. With `spare_children` only the agents themselves end, until `release`."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()
        if not spare_children:
            await self.release()

    async def release(self) -> None:
        """Kill whatever the agents started."""
        streams, self._streams = self._streams, []
        for stream in streams:
            with suppress(SandboxError):
                await stream.kill()

    async def _open(self, player: Player) -> Session:
        around, spec = self._around, player.spec
        account, place = around.cast.accounts[player.role.name], workplace(around.sandbox, around.cast)
        bundle = self._bundles[player.role.agent]
        plan = await self._plan(player, bundle)
        files: dict[str, str | bytes] = dict(plan.files)
        files |= {login.target: login.source.read_bytes() for login in plan.logins}
        await write_home(around.sandbox, account, files)
        await around.skills.link(around.sandbox, player, account)
        path = ":".join([around.sandbox.env.get("PATH", "/usr/local/bin:/usr/bin:/bin"), *bundle.path_dirs])
        given = _harmless({**(around.env or {}), **player.role.env}, player)
        env = {**plan.env, "PATH": path, "HOME": account.home, **around.cast.env, **given}
        for command in plan.before:
            await self._serve(account, command, plan.port, env)

        async def start() -> Stream:
            stream = await self._start(account, plan.argv, env)
            return Leader(stream)

        options = SessionOptions(
            cwd=around.sandbox.workdir,
            user=account.user,
            env=env,
            mcp_servers=around.mcp_servers,
            permission=spec.session.permission,
            offer_files=spec.session.files,
            offer_terminals=spec.session.terminals,
        )
        session = await connect_with_retry(
            start,
            place,
            options,
            on_event=self._events_of(player.role.name),
            log=lambda line: around.log(player.role.agent, line),
        )
        try:
            await self._choose_model(session, spec, plan)
            if spec.session.mode:
                await session.set_mode(spec.session.mode)
        except BaseException:
            await session.close()
            raise
        return session

    async def _plan(self, player: Player, bundle: Bundle) -> LaunchPlan:
        return plan_launch(
            player.spec,
            bundle,
            model=player.role.model,
            home=self._around.cast.accounts[player.role.name].home,
            workspace=self._around.sandbox.workdir,
            endpoint=await self._around.wire.endpoint(player),
            credentials=player.credentials,
            port=SERVICE_PORT + list(self._around.cast.accounts).index(player.role.name),
        )

    async def _choose_model(self, session: Session, spec: AgentSpec, plan: LaunchPlan) -> None:
        way = spec.session.model
        if not plan.model or (way == "auto" and plan.told):
            return
        if way in ("auto", "config_option", "set_model") and await session.set_model(plan.model, way) is None:
            self._around.note(f"{spec.name} was not told of the model {plan.model}: it offers no choice of one")

    def _events_of(self, role: str) -> Callable[[Event], None]:
        """Events say whose they are where there are several roles."""
        record = self._around.on_event
        return (lambda one: record({**one, "actor": role})) if len(self._around.cast.accounts) > 1 else record

    async def _start(self, account: Account, argv: Sequence[str], env: Mapping[str, str]) -> Stream:
        place, cwd = workplace(self._around.sandbox, self._around.cast), self._around.sandbox.workdir
        stream = await place.open(argv, user=account.user, env=env, cwd=cwd)
        self._streams.append(stream)
        return stream

    async def _serve(self, account: Account, command: Sequence[str], port: int, env: Mapping[str, str]) -> None:
        log = f"{account.home}/{SERVICE_LOG}"
        await self._start(account, ["/bin/sh", "-c", f'exec "$@" > {log} 2>&1', "sh", *command], env)
        wanted = f":{port:04X} "
        try:
            async with asyncio.timeout(SERVICE_TIMEOUT):
                while True:
                    table = await self._around.sandbox.exec(["cat", "/proc/net/tcp", "/proc/net/tcp6"], cwd="/")
                    if any(wanted in line and " 0A " in line for line in table.text.splitlines()):
                        return
                    await asyncio.sleep(SERVICE_LOOK)
        except TimeoutError:
            said = await self._around.sandbox.exec(["tail", "-c", "2000", log], user=0, cwd="/")
            message = f"{command[0]} does not listen on port {port} after {SERVICE_TIMEOUT:g} s"
            raise AgentTimeout(message, stderr=said.text) from None


_WAY = {"base_url", "base_origin", "base_path", "api_key"}
"""What an agent finds its model by."""


def _harmless(given: Mapping[str, str], player: Player) -> dict[str, str]:
    """Variables as they were given, without those that would lead past the gateway or bring the key that it holds."""
    if not player.through_gateway:
        return dict(given)
    found = player.credentials
    led = {name for name, text in player.spec.endpoint.env.items() if _WAY.intersection(placeholders(text))}
    reserved = {*led, *found.env}
    return {name: value for name, value in given.items() if name not in reserved and value not in found.secrets}


class Leader:
    """A stream whose `kill` ends the process alone and spares what it started; the stage ends that later."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.write = stream.write
        self.close_stdin = stream.close_stdin
        self.wait = stream.wait
        self.signal = stream.signal

    @property
    def stdout(self) -> asyncio.StreamReader:
        return self._stream.stdout

    @property
    def stderr(self) -> asyncio.StreamReader:
        return self._stream.stderr

    async def kill(self) -> None:
        await self._stream.signal(signal.SIGKILL)
        await self._stream.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()
