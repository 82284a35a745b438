"""The local backend: sandboxes without a daemon, on Linux, as root or as an ordinary user."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, get_args

from benchflow.errors import ConfigError, SandboxError, SandboxUnavailable, SandboxUnsupported
from benchflow.sandbox.base import BUILD_TIMEOUT, Limits, Network, SandboxInfo
from benchflow.sandbox.local.engine import Engine
from benchflow.sandbox.local.helper import BACKEND
from benchflow.sandbox.local.image import images_of, release_images, resolve_image
from benchflow.sandbox.local.means import STORAGE_VARIABLE, Storage
from benchflow.sandbox.local.sandbox import LocalSandbox
from benchflow.sandbox.local.spec import BoxSpec
from benchflow.sandbox.local.state import STATE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchflow.sandbox.base import Capabilities, ImageSource, SandboxSpec
    from benchflow.sandbox.local.state import Record


class LocalBackend:
    """See `Backend` for what it promises. Belongs to the event loop of its first use."""

    def __init__(self, *, storage: Storage | None = None, root: Path | None = None) -> None:
        self._storage = storage or _chosen_storage()
        self._root = root
        self._engine: Engine | None = None
        self._works = False

    @property
    def name(self) -> str:
        return BACKEND

    @property
    def engine(self) -> Engine:
        if sys.platform != "linux":
            raise SandboxUnavailable(f"it needs Linux, and this is {sys.platform}", backend=BACKEND, hint="use docker")
        if self._engine is None:
            self._engine = Engine(storage=self._storage, root=self._root)
        return self._engine

    @property
    def _capabilities(self) -> Capabilities:
        return self.engine.means.capabilities(self._storage)

    async def check(self) -> Capabilities:
        """Starts and stops an empty box, once: whatever the machine refuses is refused there."""
        if not self._works:
            spec = BoxSpec("check", (), network=Network("no-network"), limits=Limits(pids=None))
            try:
                await (await self.engine.start_box(spec)).stop()
            except SandboxUnavailable:
                raise
            except SandboxError as error:
                hint = f"see bench doctor; {STATE_VARIABLE} and {STORAGE_VARIABLE} say where sandboxes write"
                raise SandboxUnavailable(f"no sandbox can be made: {error}", backend=BACKEND, hint=hint) from error
            self._works = True
        return self._capabilities

    async def prepare(
        self, image: ImageSource, *, timeout: float = BUILD_TIMEOUT, log: Callable[[str], None] | None = None
    ) -> None:
        await resolve_image(image, engine=self.engine, log=log, timeout=timeout)

    def create(self, spec: SandboxSpec) -> LocalSandbox:
        capabilities = self._capabilities
        if lacking := _lacking(spec, capabilities):
            raise SandboxUnsupported(f"cannot give it {lacking}", backend=BACKEND, phase="create")
        return LocalSandbox(spec, self.engine, capabilities)

    async def list(self) -> Sequence[SandboxInfo]:
        return [_info(record) for record in self.engine.state.records()]

    async def reap(
        self, *, everything: bool = False, older_than: float = 0.0, dry_run: bool = False
    ) -> Sequence[SandboxInfo]:
        latest = time.time() - older_than
        found = [
            record
            for record in self.engine.state.records()
            if record.created <= latest and (everything or not record.owner.alive)
        ]
        infos = [_info(record) for record in found]
        if not dry_run:
            await self.engine.clear(found)
            await self.engine.sweep(older_than=older_than)
        return infos

    async def disk_use(self) -> Mapping[str, int]:
        return {"local image layers": await (await images_of(self.engine)).disk_use()}

    async def prune(
        self, *, older_than: float = 0.0, dry_run: bool = False, only: ImageSource | None = None
    ) -> Sequence[str]:
        if only is not None:
            return []  # an image is layers here, which images share
        return await (await images_of(self.engine)).prune(older_than=older_than, dry_run=dry_run)

    async def close(self) -> None:
        if self._engine is not None:
            engine, self._engine = self._engine, None
            self._works = False
            try:
                await engine.close()
            finally:
                release_images(engine)


def _chosen_storage() -> Storage:
    chosen = os.environ.get(STORAGE_VARIABLE, "disk")
    for known in get_args(Storage):
        if chosen == known:
            return known  # type: ignore[no-any-return]
    raise ConfigError(f"{STORAGE_VARIABLE} is {chosen!r}", hint=f"use one of {', '.join(get_args(Storage))}")


def _lacking(spec: SandboxSpec, capabilities: Capabilities) -> str:
    """What a spec asks for and this machine cannot give; empty when it can give everything."""
    limits = spec.limits
    wanted: dict[str, bool] = {
        f"a {spec.network.mode} network": spec.network.mode not in capabilities.network,
        "gpus": limits.gpus > 0,
        "a limit on cpus": limits.cpus is not None and "cpus" not in capabilities.limits,
        "a limit on memory": limits.memory_mb is not None and "memory" not in capabilities.limits,
        f"a limit on storage (with {STORAGE_VARIABLE}=tmpfs it can)": limits.storage_mb is not None
        and "storage" not in capabilities.limits,
    }
    return ", ".join(what for what, lacks in wanted.items() if lacks)


def _info(record: Record) -> SandboxInfo:
    return SandboxInfo(
        backend=BACKEND,
        id=record.id,
        job=record.job,
        rollout=record.rollout,
        owner_pid=record.owner.pid,
        owner_alive=record.owner.alive,
        created=record.created,
        state="running" if record.first.alive else "dead",
    )
