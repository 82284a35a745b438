"""One running box, as the host holds it: a first process that answers requests, and what is to be cleaned up."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from benchflow.errors import SandboxError
from benchflow.sandbox.base import OUTPUT_LIMIT, STOP_TIMEOUT
from benchflow.sandbox.local import cgroups, commands, listener, stream
from benchflow.sandbox.local.commands import Command, exec_request
from benchflow.sandbox.local.life import Life
from benchflow.sandbox.local.talk import Control
from benchflow.sandbox.local.transfer import Transfer
from benchflow.settle import finished

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from benchflow.sandbox.base import ConnectionHandler, ExecResult, FileData
    from benchflow.sandbox.local.channel import Channel
    from benchflow.sandbox.local.guest.messages import ExecRequest
    from benchflow.sandbox.local.helper import Helper
    from benchflow.sandbox.local.network_pool import BoxNetwork
    from benchflow.sandbox.local.spec import BoxSpec
    from benchflow.sandbox.local.uppers import Exchange, Stack


class Box:
    """Made by `Engine.start_box`. Methods are those of `Sandbox`, and raise the same.

    `user` None is root; `env` is all that a command gets, with PATH and HOME added when they are absent.
    """

    def __init__(
        self,
        spec: BoxSpec,
        stack: Stack,
        channel: Channel,
        *,
        helper: Helper,
        freezer: str | None,
        clean: Callable[[Box], Awaitable[None]],
        exchange: Exchange | None = None,
    ) -> None:
        self.spec = spec
        self.stack = stack
        self.notes: tuple[str, ...] = ()
        self.life = Life(channel, spec.id, exchange)
        self.control = Control(channel, spec.id)
        self.network: BoxNetwork | None = None
        self._transfer = Transfer(self.control, helper)
        self._freezer = freezer
        self._clean = clean
        self._commands: set[Command] = set()
        self._listeners: set[listener.LocalListener] = set()
        self._closing: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def ended(self) -> bool:
        """Whether it is gone, or about to be."""
        return self._closing is not None or self.control.ended

    async def responds(self) -> bool:
        return self._closing is None and await self.control.responds()

    # -- commands --------------------------------------------------------------------------------------------

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        user: str | int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes | None = None,
        timeout: float | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> ExecResult:
        request = exec_request(command, user=user, env=env, cwd=cwd)
        return await commands.run(self, request, stdin=stdin, timeout=timeout, output_limit=output_limit)

    async def open(
        self,
        command: str | Sequence[str],
        *,
        user: str | int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> stream.LocalStream:
        return await stream.open_stream(self, exec_request(command, user=user, env=env, cwd=cwd))

    async def launch(self, request: ExecRequest, stdio: Sequence[int]) -> Command:
        """Start a command on three descriptors. It counts as under way until `forget`."""
        await self.control.gate.enter()
        try:
            leash = await self.control.ask("exec", {**request}, stdio)
        except BaseException:
            self.control.gate.leave()
            raise
        command = Command(leash, self)
        self._commands.add(command)
        return command

    def forget(self, command: Command) -> None:
        self._commands.discard(command)
        self.control.gate.leave()

    async def kill(self, *, keep: Sequence[int] = ()) -> None:
        """End every process but the first one and `keep`, and return when they are gone."""
        await self.control.call("kill", {"keep": list(keep)})

    # -- files -----------------------------------------------------------------------------------------------

    async def put(
        self, source: Path | Mapping[str, FileData | bytes], target: str, *, owner: str | int | None = None
    ) -> None:
        await self._transfer.put(source, target, owner=owner)

    async def get(self, path: str, target: Path) -> None:
        await self._transfer.get(path, target)

    async def read(self, path: str, *, limit: int = OUTPUT_LIMIT) -> bytes:
        return await self._transfer.read(path, limit)

    async def erase(self, paths: Sequence[str]) -> None:
        """Remove files, links and trees, without starting a program of the box."""
        await self.control.call("erase", {"paths": list(paths)})

    # -- the rest --------------------------------------------------------------------------------------------

    async def listen(self, handler: ConnectionHandler, *, port: int = 0) -> listener.LocalListener:
        answer, descriptors = await self.control.call("listen", {"port": port})
        made = await listener.serve(handler, socket.socket(fileno=descriptors[0]), answer["port"])
        self._listeners.add(made)
        return made

    @asynccontextmanager
    async def halted(self) -> AsyncIterator[None]:
        """Every process stands still within. For a caller that holds the gate."""
        try:
            if self._freezer is not None:
                await finished(asyncio.to_thread(cgroups.freeze, self._freezer))
            else:
                await self.control.bypass("freeze")
            yield
        except TimeoutError as error:
            raise SandboxError(str(error), backend="local", sandbox=self.id, phase="fork") from error
        finally:
            if self._freezer is not None:
                await finished(asyncio.to_thread(cgroups.thaw, self._freezer))
            else:
                await self.control.bypass("thaw")

    async def stop(self) -> None:
        """Kill everything and remove everything but a given `upper`. Idempotent; goes to its end when cancelled.

        Raises SandboxError when that takes longer than `STOP_TIMEOUT`.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name=f"stop {self.id}")
        await finished(self._closing)

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                for made in self._listeners:
                    await made.close()
                await self.life.end()
                for command in self._commands.copy():
                    await command.kill()
                self.control.close()
                await self._clean(self)
        except TimeoutError:
            raise SandboxError(
                f"not gone after {STOP_TIMEOUT:g} s",
                backend="local",
                sandbox=self.id,
                phase="stop",
                hint="bench cleanup",
            ) from None
