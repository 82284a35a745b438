"""The Docker backend: sandboxes as containers of the engine that DOCKER_HOST or a well-known socket leads to.

Connects on first use and belongs to the event loop of that use. Whatever outlives this process carries labels (see
`labels`), and only what carries them is ever listed or removed.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from benchflow.sandbox.base import BUILD_TIMEOUT
from benchflow.sandbox.docker import labels
from benchflow.sandbox.docker.box import DockerSandbox
from benchflow.sandbox.docker.container import remove_container
from benchflow.sandbox.docker.home import Home
from benchflow.sandbox.docker.sockets import BACKEND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import aiodocker

    from benchflow.sandbox.base import Capabilities, ImageSource, SandboxInfo, SandboxSpec


class DockerBackend:
    """See `benchflow.sandbox.base.Backend`."""

    name = BACKEND

    def __init__(self) -> None:
        self._home = Home()

    async def check(self) -> Capabilities:
        await self._home.engine()
        assert self._home.capabilities is not None
        return self._home.capabilities

    async def prepare(
        self, image: ImageSource, *, timeout: float = BUILD_TIMEOUT, log: Callable[[str], None] | None = None
    ) -> None:
        await (await self._home.images()).ensure(image, timeout=timeout, log=log)

    def create(self, spec: SandboxSpec) -> DockerSandbox:
        self._home.check(spec)
        return DockerSandbox(self._home, spec)

    async def list(self) -> Sequence[SandboxInfo]:
        engine = await self._home.engine()
        async with engine.call("", "list"):
            return await _list(engine.docker)

    async def reap(
        self, *, everything: bool = False, older_than: float = 0.0, dry_run: bool = False
    ) -> Sequence[SandboxInfo]:
        engine = await self._home.engine()
        images = await self._home.images()
        async with engine.call("", "reap"):
            found = await _list(engine.docker)
            doomed = [
                info
                for info in found
                if (everything or not info.owner_alive) and time.time() - info.created >= older_than
            ]
            if not dry_run:
                await asyncio.gather(*(_reap(self._home, info.id) for info in doomed))
                for fork in await images.stale_snapshots({info.id for info in found} - {info.id for info in doomed}):
                    await images.remove_snapshot(fork)
        return doomed

    async def disk_use(self) -> Mapping[str, int]:
        engine = await self._home.engine()
        async with engine.call("", "disk use"):
            return await (await self._home.images()).disk_use()

    async def prune(
        self, *, older_than: float = 0.0, dry_run: bool = False, only: ImageSource | None = None
    ) -> Sequence[str]:
        engine = await self._home.engine()
        async with engine.call("", "prune"):
            return await (await self._home.images()).prune(older_than=older_than, dry_run=dry_run, only=only)

    async def close(self) -> None:
        await asyncio.gather(*(sandbox.stop() for sandbox in tuple(self._home.live)))
        await self._home.close()


async def _list(docker: aiodocker.Docker) -> list[SandboxInfo]:
    found = []
    for container in await docker.containers.list(all="true", filters=f'{{"label": ["{labels.ID}"]}}'):
        marks: dict[str, str] = container["Labels"] or {}
        # A container that somebody made from an image of ours has its labels but not its name.
        if f"/{marks.get(labels.ID)}" in container["Names"]:
            found.append(labels.read(marks, str(container["State"])))
    return found


async def _reap(home: Home, sandbox: str) -> None:
    engine, images = await home.engine(), await home.images()
    async with engine.slot(sandbox, "reap"):
        await remove_container(engine, sandbox)
        await images.remove_snapshot(sandbox)
