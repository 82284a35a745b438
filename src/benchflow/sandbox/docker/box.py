"""One sandbox: a container that does nothing by itself, commands run in it, and everything removed at the end.

The container's name is the sandbox's id, chosen before anything is made, so that whatever a cancelled or failed start
left can be removed by name. Creating is never abandoned half-way: a cancelled caller waits for the engine's answer,
then what was made is removed.
"""

from __future__ import annotations

import asyncio
import posixpath
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from benchflow.errors import SandboxError, SandboxGone, SandboxUnsupported
from benchflow.sandbox.archive import Item, listing
from benchflow.sandbox.base import OUTPUT_LIMIT, STOP_TIMEOUT, Capabilities, Change
from benchflow.sandbox.docker import labels
from benchflow.sandbox.docker.container import HOSTS, create_body, keepers_env, new_id, remove_container
from benchflow.sandbox.docker.far import Far
from benchflow.sandbox.docker.hold import in_own_thread
from benchflow.sandbox.docker.image import Image
from benchflow.sandbox.docker.inject import InjectedListener, bind_inside
from benchflow.sandbox.docker.inside import Inside, ThroughKernel
from benchflow.sandbox.docker.launch import find_init, helper, launch
from benchflow.sandbox.docker.layers import ATTRIBUTES, Layers, layers_of, refuse_holes
from benchflow.sandbox.docker.output import run
from benchflow.sandbox.docker.passwd import owner_ids
from benchflow.sandbox.docker.place import Init, Place
from benchflow.sandbox.docker.relay import RelayListener, program
from benchflow.sandbox.docker.sockets import BACKEND
from benchflow.sandbox.local.guest.difference import differences, present, stage
from benchflow.settle import finished, finished_or_undone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from types import TracebackType

    from benchflow.sandbox.base import ConnectionHandler, ExecResult, FileData, Network, SandboxSpec
    from benchflow.sandbox.docker.engine import Engine
    from benchflow.sandbox.docker.home import Home
    from benchflow.sandbox.docker.near import Near
    from benchflow.sandbox.docker.process import Process


class DockerSandbox:
    """See `benchflow.sandbox.base.Sandbox`. With `snapshot`, the image is a fork's own and goes with the sandbox."""

    backend = BACKEND

    def __init__(self, home: Home, spec: SandboxSpec, *, snapshot: Image | None = None, name: str = "") -> None:
        self.id = name or new_id(spec.name)
        self.notes: tuple[str, ...] = ()
        self._home = home
        self._spec = spec
        self._snapshot = snapshot
        self._image: Image | None = snapshot
        self._place: Place | None = None
        self._near: Near | None = None
        self._layers: Layers | None = None
        self._image_layers: int | None = None
        self._begun = False
        self._stopping = False
        self._changing = asyncio.Lock()
        self._removal: asyncio.Task[None] | None = None
        self._processes: set[Process] = set()
        self._listeners: set[InjectedListener | RelayListener] = set()

    @property
    def capabilities(self) -> Capabilities:
        known = self._home.capabilities or Capabilities()
        if self._place is None or self._near is not None:
            return known
        # An engine on this machine may keep its containers from us, with users of their own.
        return replace(known, changes=False, restrain=False)

    @property
    def workdir(self) -> str:
        return self._spec.workdir or (self._image.workdir if self._image else "") or "/"

    @property
    def env(self) -> Mapping[str, str]:
        return {**(self._image.env if self._image else {}), **self._spec.env}

    # -- life ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self._begun or self._stopping:
            raise self._error("it was started before", "start")
        self._begun = True
        self._home.live.add(self)
        try:
            engine = await self._home.engine()
            self._home.check(self._spec)
            self._check_mounts()
            if self._image is None:
                images = await self._home.images()
                self._image = await images.ensure(
                    self._spec.image, timeout=self._spec.build_timeout, log=self._spec.log
                )
            async with self._changing:
                await self._bring_up(engine, self._image)
        except BaseException:
            await self.stop()
            raise

    def _check_mounts(self) -> None:
        for mount in self._spec.mounts:
            if not mount.source.exists():
                raise self._error(f"{mount.source}, to be mounted at {mount.target}, does not exist", "start")

    async def _bring_up(self, engine: Engine, image: Image) -> None:
        marks = labels.of_sandbox(self.id, self._spec.owner)
        self._still_wanted()
        async with engine.slot(self.id, "create"):
            network = await self._home.network() if self._spec.network.mode != "no-network" else ""
            body = create_body(self._spec, image.id, self.workdir, self.env, marks, network)
            created = await finished(engine.docker.containers.create(body, name=self.id))
        self._still_wanted()
        async with engine.slot(self.id, "start"):
            await created.start()
            shown = await created.show()
            state = shown["State"]
        if not state["Running"]:
            raise SandboxError(
                f"the container ended at once with exit code {state['ExitCode']}",
                backend=BACKEND,
                sandbox=self.id,
                phase="start",
                hint="the image needs /bin/sh and sleep",
            )
        self._still_wanted()
        await self._settle_in(engine, created.id, int(state["Pid"]))
        if self._near:
            self._layers = await asyncio.to_thread(layers_of, shown, self._image_layers)

    async def _settle_in(self, engine: Engine, container: str, first: int) -> None:
        def enter() -> None:
            self._near = self._home.near(container, first)

        await finished(asyncio.to_thread(enter))
        inside: Inside = ThroughKernel(self._near) if self._near else Far(engine, container, self._helper)
        place = Place(engine, self.id, container, inside, Init(), lambda: self._stopping)
        self._place = place
        if self._home.init is None:
            self._home.init = await find_init(place)
        self._place = replace(place, init=self._home.init)
        if self._spec.network.mode == "no-network" and not engine.podman:
            async with place.guard("start"):
                hosts = HOSTS.format(name=container[:12]).encode()
                await inside.put([Item("", "file", 0o644, hosts)], "/etc/hosts", (0, 0))

    def _still_wanted(self) -> None:
        if self._stopping:
            raise self._gone("start")

    async def stop(self) -> None:
        self._stopping = True
        if self._removal is None:
            self._removal = asyncio.create_task(self._remove())
        await finished(self._removal)

    async def _remove(self) -> None:
        try:
            for listener in tuple(self._listeners):
                await listener.close()
            async with self._changing:
                if self._begun:
                    await self._remove_container()
            for process in tuple(self._processes):
                await process.release()
        finally:
            if self._near is not None:
                self._near.close()
            self._home.live.discard(self)

    async def _remove_container(self) -> None:
        if self._home.capabilities is None:
            return
        engine = await self._home.engine()
        async with engine.slot(self.id, "stop"):
            try:
                async with asyncio.timeout(STOP_TIMEOUT):
                    await remove_container(engine, self.id)
                    if self._snapshot is not None:
                        await (await self._home.images()).remove_snapshot(self.id)
            except TimeoutError:
                raise self._error(f"not removed within {STOP_TIMEOUT:g} s; `bench cleanup` will", "stop") from None

    async def __aenter__(self) -> Self:
        if self._place is None:
            await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- commands ------------------------------------------------------------------------------------------

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
        process = await self._launch(command, user=user, env=env, cwd=cwd, stdin=stdin is not None)
        return await run(process, stdin=stdin, timeout=timeout, limit=output_limit)

    async def open(
        self,
        command: str | Sequence[str],
        *,
        user: str | int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Process:
        return await self._launch(command, user=user, env=env, cwd=cwd, stdin=True)

    async def _launch(
        self,
        command: str | Sequence[str],
        *,
        user: str | int | None,
        env: Mapping[str, str] | None,
        cwd: str | None,
        stdin: bool,
    ) -> Process:
        place = self._running("exec")
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        if not argv:
            raise self._error("the command is empty", "exec")
        assert self._image is not None
        process = await launch(
            place,
            argv,
            user=self._image.user if user is None else str(user),
            env={**{name: self.env[name] for name in keepers_env(self.env) if name in self.env}, **(env or {})},
            cwd=posixpath.join(self.workdir, cwd or ""),
            stdin=stdin,
        )
        process.on_release = self._processes.discard
        self._processes.add(process)
        return process

    async def _helper(self, argv: Sequence[str], user: str) -> ExecResult:
        return await helper(self._running("helper"), argv, user)

    async def kill_processes(self, *, keep: Sequence[int] = ()) -> None:
        place = self._running("kill")
        async with place.guard("kill"):
            await place.inside.kill_all(keep)

    @asynccontextmanager
    async def restrained(self) -> AsyncIterator[None]:
        place = self._running("restrain")
        if self._near is None or not self.capabilities.restrain:
            raise SandboxUnsupported(
                "processes cannot be restrained with this engine",
                backend=BACKEND,
                sandbox=self.id,
                phase="restrain",
                hint="run as root on the engine's machine",
            )
        async with AsyncExitStack() as held:
            async with place.guard("restrain"):
                await held.enter_async_context(in_own_thread(self._near.restrained))
            yield

    # -- files ---------------------------------------------------------------------------------------------

    async def put(
        self, source: Path | Mapping[str, FileData | bytes], target: str, *, owner: str | int | None = None
    ) -> None:
        place = self._running("put")
        try:
            items = await asyncio.to_thread(listing, source)
        except ValueError as error:
            raise self._error(str(error), "put") from None
        ids = await self._owner_ids(place, owner)
        try:
            async with place.guard("put", timeout=None):
                await place.inside.put(items, self._absolute(target), ids)
        except FileNotFoundError as error:
            raise self._error(f"{target}: {error}", "put") from error

    async def _owner_ids(self, place: Place, owner: str | int | None) -> tuple[int, int]:
        if owner is None:
            return 0, 0
        try:
            async with place.guard("put"):
                passwd = await place.inside.read("/etc/passwd", OUTPUT_LIMIT)
        except FileNotFoundError:
            passwd = b""
        if ids := owner_ids(passwd, owner):
            return ids
        raise self._error(f"there is no user {owner!r} inside", "put")

    async def get(self, path: str, target: Path) -> None:
        place = self._running("get")
        async with place.guard("get", timeout=None):
            await place.inside.get(self._absolute(path), target)

    async def read(self, path: str, *, limit: int = OUTPUT_LIMIT) -> bytes:
        place = self._running("read")
        async with place.guard("read"):
            return await place.inside.read(self._absolute(path), limit)

    # -- what differs from the image -----------------------------------------------------------------------

    async def changes(self, *, unread: str = "", read: Sequence[str] = ()) -> Sequence[Change]:
        place = self._running("changes")
        near, layers = self._seen_from_outside("changes")

        def look() -> list[Change]:
            mounted = near.mount_points()
            rows = differences(layers.changed, layers.base, unread.rstrip("/"), list(read), ATTRIBUTES)
            return [Change(*row) for row in rows if row[0] not in mounted]  # type: ignore[arg-type]

        async with place.guard("changes", timeout=None):
            return await asyncio.to_thread(look)

    async def shipped(self, paths: Sequence[str]) -> frozenset[str]:
        place = self._running("shipped")
        _, layers = self._seen_from_outside("shipped")
        async with place.guard("shipped", timeout=None):
            return frozenset(await asyncio.to_thread(present, layers.base, list(paths), ATTRIBUTES))

    async def restore(self, paths: Sequence[str]) -> None:
        place = self._running("restore")
        near, layers = self._seen_from_outside("restore")

        def put_back() -> None:
            with tempfile.TemporaryDirectory(prefix="benchflow-") as folder, near.files() as files:
                stage(layers.base, list(paths), folder, ATTRIBUTES)
                files.remove(paths)
                files.put(listing(Path(folder)), "/", (0, 0))

        async with place.guard("restore", timeout=None):
            await finished(asyncio.to_thread(put_back))

    def _seen_from_outside(self, phase: str) -> tuple[Near, Layers]:
        if self._near is None or self._layers is None:
            raise SandboxUnsupported(
                "what differs from the image cannot be told with this engine",
                backend=BACKEND,
                sandbox=self.id,
                phase=phase,
                hint="run as root on the engine's machine, with the overlay2 storage driver",
            )
        return self._near, self._layers

    # -- forks and connections -----------------------------------------------------------------------------

    async def fork(self, *, name: str | None = None, network: Network | None = None) -> DockerSandbox:
        place = self._running("fork")
        assert self._image is not None
        spec = replace(self._spec, name=name or self._spec.name, network=network or self._spec.network)
        images = await self._home.images()
        own = new_id(spec.name)
        snapshot = Image(images.fork_name(own), self.env, self._image.user, self.workdir)
        fork = DockerSandbox(self._home, spec, snapshot=snapshot, name=own)
        fork._image_layers = self._layers.image_count if self._layers else None
        try:
            async with place.engine.slots, place.guard("fork"):
                if self._layers:
                    await asyncio.to_thread(refuse_holes, self._layers.changed)
                await finished(images.snapshot(place.container, own))
            await fork.start()
        except BaseException:
            await fork.give_up()
            raise
        return fork

    async def give_up(self) -> None:
        """Stop a fork that was not started, so that its snapshot goes too."""
        self._begun = True
        await self.stop()

    async def listen(self, handler: ConnectionHandler, *, port: int = 0) -> InjectedListener | RelayListener:
        place = self._running("listen")
        near = place.inside.near

        async def begin() -> InjectedListener | RelayListener:
            if near is None:
                return await self._relay(handler, port)
            async with place.guard("listen"):
                listening = await asyncio.to_thread(bind_inside, near, port)
                listener = InjectedListener(listening.getsockname()[1], handler, self._listeners.discard)
                await listener.serve(listening)
            self._listeners.add(listener)
            return listener

        listener = await finished_or_undone(begin(), lambda made: made.close())
        if self._stopping:
            await listener.close()
            raise self._gone("listen")
        return listener

    async def _relay(self, handler: ConnectionHandler, port: int) -> RelayListener:
        process = await self._launch(program(port), user=0, env=None, cwd="/", stdin=True)
        listener = RelayListener(process, handler, self._listeners.discard)
        if reason := await listener.serve():
            if await process.wait() == 127:
                raise SandboxUnsupported(
                    "cannot listen inside: the image has neither python3 nor perl",
                    backend=BACKEND,
                    sandbox=self.id,
                    phase="listen",
                    hint="add one of them to the image, or run as root on the engine's machine",
                )
            raise self._error(f"cannot listen on port {port} inside: {reason}", "listen")
        self._listeners.add(listener)
        return listener

    # -- errors --------------------------------------------------------------------------------------------

    def _running(self, phase: str) -> Place:
        if self._stopping:
            raise self._gone(phase)
        if self._place is None:
            raise self._error("it was not started", phase)
        return self._place

    def _absolute(self, path: str) -> str:
        return posixpath.join(self.workdir, path)

    def _error(self, message: str, phase: str) -> SandboxError:
        return SandboxError(message, backend=BACKEND, sandbox=self.id, phase=phase)

    def _gone(self, phase: str) -> SandboxError:
        return SandboxGone("it was stopped", backend=BACKEND, sandbox=self.id, phase=phase)
