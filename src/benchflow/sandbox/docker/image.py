"""Images: made available once however many want them, and remembered by when they were last used.

An image built from a context is tagged with the digest of what the build can see, so the same context is never built
twice and a changed one never mistaken. Building happens once per machine: in this process by sharing the work, between
processes by a file lock; a few at a time. Images that only forks use are tagged with the fork's id and go with it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import aiodocker

from benchflow.errors import SandboxBuildError, SandboxUnsupported
from benchflow.locks import locked
from benchflow.sandbox.base import BuildContext, ImageRef
from benchflow.sandbox.docker import labels
from benchflow.sandbox.docker.build import build, pull
from benchflow.sandbox.docker.flight import Flights
from benchflow.sandbox.docker.sockets import BACKEND
from benchflow.sandbox.dockerignore import context_digest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from benchflow.sandbox.base import ImageSource
    from benchflow.sandbox.docker.engine import Engine, Json
    from benchflow.sandbox.docker.flight import Log

CONCURRENT_BUILDS = max(1, (os.cpu_count() or 2) // 2)
"""Images that one process builds at once."""

TASK_IMAGES = "benchflow/task"
FORK_IMAGES = "benchflow/fork"

PAUSE_TRIES = 3
"""How often a container is paused for a fork: older kernels give up on one that is busy making processes."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image that is here, with what it says about the processes in it."""

    id: str
    env: Mapping[str, str]
    user: str
    workdir: str


class Images:
    """The images of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._flights = Flights()
        self._builds = asyncio.Semaphore(CONCURRENT_BUILDS)
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self._folder = cache / "benchflow" / "docker"

    async def ensure(self, source: ImageSource, *, timeout: float, log: Log | None) -> Image:
        """The image, built or pulled if it is not here. Raises SandboxBuildError and SandboxUnsupported."""
        if isinstance(source, BuildContext):
            context = source
            name = await self._name(source)
            marks = {labels.IMAGE: "task", labels.CREATED: f"{time.time():.3f}"}

            async def make(say: Log) -> None:
                async with self._builds:
                    await build(self._engine, context, name, marks, say, timeout)
        elif isinstance(source, ImageRef):
            name = source.name

            async def make(say: Log) -> None:
                await pull(self._engine, name, say, timeout)
        else:
            raise SandboxUnsupported(
                f"cannot use {type(source).__name__}: it takes a Dockerfile or the name of an image", backend=BACKEND
            )
        image = await self._find(name)
        if image is None:
            await self._flights.join(name, lambda say: self._make_once(name, make, say), log)
            image = await self._find(name)
        if image is None:
            raise SandboxBuildError(f"the image {name} is not there although it was made", backend=BACKEND)
        self._note_use(name)
        return image

    @staticmethod
    async def _name(source: BuildContext) -> str:
        """What an image is called that is built from this."""
        digest = await asyncio.to_thread(context_digest, source.path, source.dockerfile)
        return f"{TASK_IMAGES}:{digest[:40]}"

    async def _make_once(self, name: str, make: Callable[[Log], Awaitable[None]], say: Log) -> None:
        lock = self._folder / "locks" / _file_name(name)
        try:
            async with locked(lock, on_wait=lambda: say(f"another process is making {name}: waiting for it")):
                if await self._find(name) is None:
                    await make(say)
        except OSError as error:
            raise SandboxBuildError(f"{error}", backend=BACKEND, hint=f"make {self._folder} writable") from error

    async def _find(self, name: str) -> Image | None:
        async with self._engine.call("", "image"):
            try:
                found = await self._engine.docker.images.inspect(name)
            except aiodocker.DockerError as error:
                if error.status == 404:
                    return None
                raise
        config: Json = found.get("Config") or {}
        env = dict(entry.partition("=")[::2] for entry in config.get("Env") or ())
        return Image(str(found["Id"]), env, str(config.get("User") or ""), str(config.get("WorkingDir") or ""))

    # -- forks ---------------------------------------------------------------------------------------------

    @staticmethod
    def fork_name(fork: str) -> str:
        """The name of the image behind a fork."""
        return f"{FORK_IMAGES}:{fork}"

    async def snapshot(self, container: str, fork: str) -> None:
        """An image of the container's files as they are now; the container is paused meanwhile. Raises DockerError."""
        for left in reversed(range(PAUSE_TRIES)):
            try:
                await self._engine.docker.containers.container(container).commit(
                    repository=FORK_IMAGES,
                    tag=fork,
                    changes=[f"LABEL {labels.IMAGE}=fork", f"LABEL {labels.ID}={fork}"],
                    config={},
                    pause=True,
                )
                return
            except aiodocker.DockerError as error:
                if not left or "pausing" not in str(error.message):
                    raise

    async def remove_snapshot(self, fork: str) -> None:
        """Raises DockerError."""
        await self._remove(self.fork_name(fork))

    async def stale_snapshots(self, live: set[str]) -> list[str]:
        """The forks whose image is left although their owner is dead and they are not among `live`."""
        found = await self._list("fork")
        marks = [entry.get("Labels") or {} for entry in found]
        return [mark[labels.ID] for mark in marks if mark.get(labels.ID) not in live and not labels.owner_alive(mark)]

    # -- housekeeping --------------------------------------------------------------------------------------

    async def disk_use(self) -> dict[str, int]:
        """Bytes of our images by kind, the layers they share with others included. Raises DockerError."""
        return {
            f"{kind} images": sum(int(entry.get("Size") or 0) for entry in await self._list(kind))
            for kind in ("task", "fork")
        }

    async def prune(self, *, older_than: float, dry_run: bool, only: ImageSource | None = None) -> list[str]:
        """Remove task images that no container uses and nobody used for that long; their names. Raises DockerError."""
        if only is not None and not isinstance(only, BuildContext):
            return []
        wanted = await self._name(only) if only else None
        containers = await self._engine.docker.containers.list(all="true")
        used = {str(container["ImageID"]) for container in containers}
        removed = []
        for entry in await self._list("task"):
            names: Sequence[str] = entry.get("RepoTags") or ()
            last = max((self._last_use(name, entry) for name in names), default=0.0)
            if entry["Id"] in used or time.time() - last < older_than:
                continue
            for name in (name for name in names if wanted in (None, _short(name))):
                removed.append(name)
                if not dry_run:
                    await self._remove(name)
                    (self._folder / "used" / _file_name(_short(name))).unlink(missing_ok=True)
        return removed

    async def _list(self, kind: str) -> list[Json]:
        entries: list[Json] = await self._engine.docker.images.list(filters={"label": [f"{labels.IMAGE}={kind}"]})
        prefix = f"{TASK_IMAGES if kind == 'task' else FORK_IMAGES}:"
        return [
            entry for entry in entries if any(_short(name).startswith(prefix) for name in entry.get("RepoTags") or ())
        ]

    async def _remove(self, name: str) -> None:
        try:
            await self._engine.docker.images.delete(name, force=True)
        except aiodocker.DockerError as error:
            if error.status != 404:
                raise

    def _note_use(self, name: str) -> None:
        mark = self._folder / "used" / _file_name(name)
        with suppress(OSError):
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()

    def _last_use(self, name: str, entry: Json) -> float:
        with suppress(OSError):
            return (self._folder / "used" / _file_name(_short(name))).stat().st_mtime
        return float(entry.get("Created") or 0)


def _short(name: str) -> str:
    """An image's name without the registry that Podman puts before it."""
    for registry in ("docker.io/", "localhost/"):
        name = name.removeprefix(registry)
    return name


def _file_name(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:32]
