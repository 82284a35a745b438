"""Dockerfiles that are more than the simple lines: handed to a builder that is here, or refused clearly.

The built image is exported once and kept under the digest of its context, like any other layer. Without a builder the
refusal names the line, why it is not simple, and what to install.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import shutil
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections import deque
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import aiodocker

from benchflow.errors import SandboxBuildError
from benchflow.sandbox.docker.image import Images
from benchflow.sandbox.dockerignore import context_digest
from benchflow.sandbox.local import containers
from benchflow.sandbox.local.bases import digest, kept_base, waiting
from benchflow.sandbox.local.steps import OUTPUT_LINES, read_lines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from benchflow.sandbox.base import BuildContext
    from benchflow.sandbox.docker.engine import Engine as ContainerEngine
    from benchflow.sandbox.local.bases import Base, Bases
    from benchflow.sandbox.local.dockerfile import Dockerfile
    from benchflow.sandbox.local.instructions import Instruction
    from benchflow.sandbox.local.layers import LayerStore
    from benchflow.sandbox.local.plan import ImageConfig
    from benchflow.sandbox.local.steps import Log

type Builder = Callable[[BuildContext, Path, Log], Awaitable[ImageConfig | None]]
"""Builds a context and writes the image, or its root file system, to a tar. A root file system's configuration is
returned; an image archive carries its own."""

INSTALL_HINT = "install a builder (`apt-get install buildah`, or Docker or Podman), or write the line in a simple form"


async def build_elsewhere(
    context: BuildContext,
    dockerfile: Dockerfile,
    at: Instruction,
    why: str,
    *,
    bases: Bases,
    store: LayerStore,
    log: Log,
) -> Base:
    """The image of a context whose instruction `at` only a real builder can execute, because of `why`.

    Raises SandboxBuildError: with the builder's output when it fails, with the line when there is none.
    """
    content = await asyncio.to_thread(context_digest, context.path, context.dockerfile)
    key = digest("built", bases.flavor, content)
    if kept := store.find(key):
        return kept_base(kept)
    async with containers.container_engine() as engine:
        builder = await _choose(engine, buildkit=dockerfile.needs_buildkit)
        if builder is None:
            raise dockerfile.error(at, f"the local sandbox cannot execute this line itself ({why})", hint=INSTALL_HINT)

        async def make(folder: Path) -> Mapping[str, object]:
            archive = folder.parent / "image.tar"
            config = await builder(context, archive, log)
            about = await bases.unpack(archive, folder)
            archive.unlink()
            return {**about, "text": str(context.path), **({"config": asdict(config)} if config else {})}

        return kept_base(await store.ensure(key, make, on_wait=waiting(log)))


async def _choose(engine: ContainerEngine | None, *, buildkit: bool) -> Builder | None:
    """A builder that is here. Docker's own API has none for what only BuildKit knows."""
    if engine is not None and (engine.podman or not buildkit):
        return lambda context, archive, log: _by_engine(engine, context, archive, log)
    if engine is not None and await _has_buildx():
        return lambda context, archive, log: _by_buildx(engine, context, archive, log)
    return _by_buildah if shutil.which("buildah") else None


async def _by_engine(engine: ContainerEngine, context: BuildContext, archive: Path, log: Log) -> ImageConfig:
    # Its own limit is off: the time of the whole build is watched by whoever asked for it.
    image = await Images(engine).ensure(context, timeout=math.inf, log=log)
    return await containers.export(engine, image.id, archive)


async def _by_buildx(engine: ContainerEngine, context: BuildContext, archive: Path, log: Log) -> ImageConfig:
    tag = _tag()
    file = str(context.path / context.dockerfile)
    try:
        await _command(["docker", "buildx", "build", "--load", "--tag", tag, "--file", file, str(context.path)], log)
        return await containers.export(engine, tag, archive)
    finally:
        with suppress(aiodocker.DockerError):  # it was never built
            await engine.docker.images.delete(tag, force=True)


async def _by_buildah(context: BuildContext, archive: Path, log: Log) -> None:
    tag = f"localhost/{_tag()}"
    file = str(context.path / context.dockerfile)
    try:
        await _command(
            ["buildah", "build", "--isolation", "chroot", "--tag", tag, "--file", file, str(context.path)], log
        )
        await _command(["buildah", "push", "--quiet", tag, f"docker-archive:{archive}"], log)
    finally:
        await _command(["buildah", "rmi", tag], log=lambda _: None, check=False)


def _tag() -> str:
    return f"benchflow-build:{secrets.token_hex(8)}"


async def _has_buildx() -> bool:
    if not shutil.which("docker"):
        return False
    process = await asyncio.create_subprocess_exec(
        "docker", "buildx", "version", stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
    )
    return await process.wait() == 0


async def _command(argv: list[str], log: Log, *, check: bool = True) -> None:
    """Run a builder's program, its output going to `log`. Raises SandboxBuildError when it fails."""
    output: deque[str] = deque(maxlen=OUTPUT_LINES)

    def note(line: str) -> None:
        output.append(line)
        log(line)

    process = await asyncio.create_subprocess_exec(*argv, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
    assert process.stdout is not None, "a pipe was asked for"
    try:
        await read_lines(process.stdout, note)
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if check and code != 0:
        raise _failed(argv[0], "\n".join(output))


def _failed(who: str, output: str) -> SandboxBuildError:
    return SandboxBuildError(f"{who} could not build the image", backend="local", output=output)
