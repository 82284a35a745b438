"""A sandbox of the local backend: an image, and a box made from it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from benchflow.errors import SandboxError, SandboxGone, SandboxUnsupported
from benchflow.sandbox.base import OUTPUT_LIMIT
from benchflow.sandbox.local.helper import BACKEND
from benchflow.sandbox.local.image import resolve_image
from benchflow.sandbox.local.spec import BoxSpec, new_id
from benchflow.settle import finished

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from benchflow.sandbox.base import (
        Capabilities,
        Change,
        ConnectionHandler,
        ExecResult,
        FileData,
        Listener,
        Network,
        SandboxSpec,
        Stream,
    )
    from benchflow.sandbox.local.box import Box
    from benchflow.sandbox.local.engine import Engine


@dataclass(frozen=True, slots=True)
class Running:
    """A box, and what its commands start with."""

    box: Box
    env: Mapping[str, str]
    workdir: str
    user: str | None
    notes: tuple[str, ...]


class LocalSandbox:
    """See `Sandbox` for what it promises. Made by `LocalBackend.create`, and by `fork`."""

    def __init__(
        self, spec: SandboxSpec, engine: Engine, capabilities: Capabilities, *, forked: Running | None = None
    ) -> None:
        self._spec = spec
        self._id = forked.box.id if forked else new_id(spec.name)
        self._engine = engine
        self._capabilities = capabilities
        self._starting: asyncio.Task[Running] | None = None
        self._running = forked
        self._stopped = False

    @property
    def id(self) -> str:
        return self._id

    @property
    def backend(self) -> str:
        return BACKEND

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def workdir(self) -> str:
        return self._now("workdir").workdir

    @property
    def env(self) -> Mapping[str, str]:
        return self._now("env").env

    @property
    def notes(self) -> tuple[str, ...]:
        return self._running.notes if self._running else ()

    def _now(self, phase: str) -> Running:
        if self._running is not None:
            return self._running
        if self._stopped:
            raise SandboxGone("it was stopped", backend=BACKEND, sandbox=self._id, phase=phase)
        raise SandboxError("it was not started", backend=BACKEND, sandbox=self._id, phase=phase)

    # -- from start to stop ----------------------------------------------------------------------------------

    async def start(self) -> None:
        if self._stopped:
            raise SandboxGone("it was stopped", backend=BACKEND, sandbox=self._id, phase="start")
        if self._running is not None:
            return
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name=f"start {self._id}")
        task = self._starting
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            await self._give_up_start()
            raise
        if task.cancelled():
            raise SandboxGone("it was stopped while it was starting", backend=BACKEND, sandbox=self._id, phase="start")
        self._running = task.result()

    async def _start(self) -> Running:
        spec = self._spec
        image = await resolve_image(spec.image, engine=self._engine, log=spec.log, timeout=spec.build_timeout)
        workdir = spec.workdir or image.workdir or "/"
        box = await self._engine.start_box(
            BoxSpec(
                spec.name,
                image.layers,
                network=spec.network,
                limits=spec.limits,
                mounts=(*image.mounts, *spec.mounts),
                owner=spec.owner,
                id=self._id,
                folders=(workdir,),
            )
        )
        notes = (*image.notes, *self._engine.means.notes, *box.notes)
        return Running(box, {**image.env, **spec.env}, workdir, image.user, notes)

    async def _give_up_start(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await finished(_settle(self._starting))
            if not self._starting.cancelled() and self._starting.exception() is None:
                await self._starting.result().box.stop()

    async def stop(self) -> None:
        self._stopped = True
        await finished(self._stop())

    async def _stop(self) -> None:
        if self._running is not None:
            await self._running.box.stop()
        else:
            await self._give_up_start()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

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
        now = self._now("exec")
        return await now.box.exec(
            command,
            user=now.user if user is None else user,
            env={**now.env, **(env or {})},
            cwd=cwd or now.workdir,
            stdin=stdin,
            timeout=timeout,
            output_limit=output_limit,
        )

    async def open(
        self,
        command: str | Sequence[str],
        *,
        user: str | int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Stream:
        now = self._now("open")
        return await now.box.open(
            command, user=now.user if user is None else user, env={**now.env, **(env or {})}, cwd=cwd or now.workdir
        )

    async def kill_processes(self, *, keep: Sequence[int] = ()) -> None:
        await self._now("kill").box.kill(keep=keep)

    @asynccontextmanager
    async def restrained(self) -> AsyncIterator[None]:
        now = self._now("restrain")
        if not self._capabilities.restrain:
            raise SandboxUnsupported(
                "processes cannot be restrained here", backend=BACKEND, sandbox=self._id, phase="restrain"
            )
        async with self._engine.restrained(now.box):
            yield

    # -- files and the rest ----------------------------------------------------------------------------------

    async def put(
        self, source: Path | Mapping[str, FileData | bytes], target: str, *, owner: str | int | None = None
    ) -> None:
        await self._now("put").box.put(source, target, owner=owner)

    async def get(self, path: str, target: Path) -> None:
        await self._now("get").box.get(path, target)

    async def read(self, path: str, *, limit: int = OUTPUT_LIMIT) -> bytes:
        return await self._now("read").box.read(path, limit=limit)

    async def fork(self, *, name: str | None = None, network: Network | None = None) -> LocalSandbox:
        now = self._now("fork")
        spec = replace(self._spec, name=name or self._spec.name, network=network or self._spec.network)
        box = await self._engine.fork_box(now.box, name=spec.name, network=spec.network)
        return LocalSandbox(spec, self._engine, self._capabilities, forked=replace(now, box=box))

    async def changes(self, *, unread: str = "", read: Sequence[str] = ()) -> Sequence[Change]:
        return await self._engine.changes(self._now("changes").box, unread, read)

    async def shipped(self, paths: Sequence[str]) -> frozenset[str]:
        return await self._engine.shipped(self._now("shipped").box, paths)

    async def restore(self, paths: Sequence[str]) -> None:
        await self._engine.restore(self._now("restore").box, paths)

    async def listen(self, handler: ConnectionHandler, *, port: int = 0) -> Listener:
        return await self._now("listen").box.listen(handler, port=port)


async def _settle(task: asyncio.Task[Running]) -> None:
    await asyncio.wait({task})
