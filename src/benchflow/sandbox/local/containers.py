"""Container engines as a source of images: a Docker-compatible socket, where one answers.

The local backend needs none. Where there is one, it is asked for images that Dockerfiles name and for builds that
only it can do, and what it gives is exported once, as a tar of a root file system.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import aiodocker
import aiohttp

from benchflow.errors import SandboxUnavailable
from benchflow.sandbox.docker.build import pull
from benchflow.sandbox.docker.engine import connect
from benchflow.sandbox.local.archives import image_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from benchflow.sandbox.docker.engine import Engine as ContainerEngine
    from benchflow.sandbox.local.plan import ImageConfig

PULL_TIMEOUT = 300.0
"""Seconds a pull may take before another base stands in; the build's own limit holds as well."""

CHUNK = 1 << 20

ENGINE_ERRORS = (aiodocker.DockerError, aiohttp.ClientError, OSError)


@asynccontextmanager
async def container_engine() -> AsyncIterator[ContainerEngine | None]:
    """The engine that answers here, or None."""
    try:
        engine = await connect()
    except SandboxUnavailable:
        yield None
        return
    try:
        yield engine
    finally:
        await engine.close()


async def image_id(engine: ContainerEngine, name: str) -> str | None:
    """The id of an image that the engine has. Raises ENGINE_ERRORS."""
    try:
        found = await engine.docker.images.inspect(name)
    except aiodocker.DockerError as error:
        if error.status == 404:
            return None
        raise
    return str(found["Id"])


async def pulled(engine: ContainerEngine, name: str, log: Callable[[str], None]) -> str:
    """Have the engine pull an image; its id. Raises SandboxBuildError and ENGINE_ERRORS."""
    await pull(engine, name, log, PULL_TIMEOUT)
    return str((await engine.docker.images.inspect(name))["Id"])


async def export(engine: ContainerEngine, image: str, target: Path) -> ImageConfig:
    """Write the root file system of an image to the tar `target`. Raises ENGINE_ERRORS."""
    found = await engine.docker.images.inspect(image)
    # Never started: only a container has all layers of an image in one.
    container = await engine.docker.containers.create({"Image": image, "Entrypoint": ["/none"], "Cmd": ["none"]})
    try:
        async with engine.request("GET", f"containers/{container.id}/export", params={}) as response:
            with target.open("wb") as file:
                async for chunk in response.content.iter_chunked(CHUNK):
                    await asyncio.to_thread(file.write, chunk)
    finally:
        await container.delete(force=True)
    return image_config(cast("Mapping[str, object]", found.get("Config") or {}))
