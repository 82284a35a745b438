"""Images of the local backend: from what a spec names to folders that boxes stack.

A Dockerfile becomes one layer per instruction that changes files, each keyed by everything it depends on: the layers
below, the instruction with all variables in force, the files it copies, and whether root made it. So a layer is made
once, whoever wants it and whenever, and a change in the middle of a file keeps what is above it. Layers are shared
by all sandboxes and never written to.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchflow.errors import SandboxBuildError
from benchflow.sandbox.base import BUILD_TIMEOUT, DEFAULT_PATH, BuildContext, HostRoot, ImageRef, RootFolder
from benchflow.sandbox.dockerignore import context_files, read_inside
from benchflow.sandbox.local.bases import BASE_VARIABLE, Base, Bases, digest, waiting
from benchflow.sandbox.local.dockerfile import parse
from benchflow.sandbox.local.layers import LayerStore
from benchflow.sandbox.local.plan import base_name, needs_builder, plan
from benchflow.sandbox.local.spec import BoxSpec
from benchflow.sandbox.local.steps import carry_out

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchflow.sandbox.base import ImageSource, Mount
    from benchflow.sandbox.dockerignore import ContextFile
    from benchflow.sandbox.local.dockerfile import Dockerfile
    from benchflow.sandbox.local.engine import Engine
    from benchflow.sandbox.local.plan import Step
    from benchflow.sandbox.local.steps import Log

CONCURRENT_STEPS = max(2, os.cpu_count() or 2)
"""Steps that one process carries out at once."""

TAIL_LINES = 20
"""Lines of a build's output that the error for its time limit shows."""


@dataclass(frozen=True, slots=True)
class Image:
    """What a sandbox is made of. `layers` are folders, top first; `mounts` belong over them; `user` None is root."""

    layers: tuple[Path, ...]
    env: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    workdir: str = "/"
    user: str | None = None
    notes: tuple[str, ...] = ()


async def resolve_image(
    source: ImageSource,
    *,
    engine: Engine,
    log: Log | None = None,
    timeout: float = BUILD_TIMEOUT,
    base: str | None = None,
) -> Image:
    """The image that `source` names, made if it does not exist; once, however many ask.

    `base` is what stands in for images that cannot be had; by default what BENCHFLOW_LOCAL_BASE says, else the host's
    root. Raises SandboxBuildError with the failing step and its output, also when `timeout` seconds are over.
    """
    images = await images_of(engine)
    chosen = base or os.environ.get(BASE_VARIABLE) or "host"
    return await images.resolve(source, base=chosen, log=log, timeout=timeout)


async def images_of(engine: Engine) -> Images:
    """The images of an engine: the same object until `release_images`."""
    found = _images.get(engine)
    if found is None:
        flavor = await engine.flavor()
        found = _images.setdefault(engine, Images(engine, flavor, engine.state.root))
    return found


def release_images(engine: Engine) -> None:
    """Give up what an engine used, so that it can be pruned. Call it when its sandboxes have stopped."""
    if images := _images.pop(engine, None):
        images.close()


class Images:
    """The image cache as one engine uses it."""

    def __init__(self, engine: Engine, flavor: str, cache: Path) -> None:
        self._engine = engine
        self._flavor = flavor
        self._cache = cache
        self._store = LayerStore(cache, engine.remove)
        self._bases = Bases(engine, self._store, cache / "names", flavor)
        self._slots = asyncio.Semaphore(CONCURRENT_STEPS)

    async def resolve(self, source: ImageSource, *, base: str, log: Log | None, timeout: float) -> Image:
        """See `resolve_image`."""
        progress = _Progress(log)
        try:
            async with asyncio.timeout(timeout):
                made = await self._make(source, base, progress)
        except TimeoutError:
            raise SandboxBuildError(
                f"the image was not ready within {timeout:g} s",
                backend="local",
                step=progress.step,
                output="\n".join(progress.tail),
                hint="raise build_timeout_sec in the task's [environment]",
            ) from None
        except OSError as error:
            raise SandboxBuildError(
                f"the image cache {self._cache} cannot be used: {error}",
                backend="local",
                step=progress.step,
                hint="make it writable and see that its disk has room, or set BENCHFLOW_LOCAL_DIR to another folder",
            ) from error
        self._store.touch(made.kept)
        config = made.config
        env = {"PATH": DEFAULT_PATH, **config.env}
        return Image(made.layers, env, made.mounts, config.workdir, config.user or None, made.notes)

    async def prune(self, *, older_than: float = 0.0, dry_run: bool = False) -> list[str]:
        """Remove layers that no live process uses and that were last used `older_than` seconds ago or earlier."""
        return await self._store.prune(older_than=older_than, dry_run=dry_run)

    async def disk_use(self) -> int:
        """Bytes that the layers take on the disk."""
        return await asyncio.to_thread(self._store.disk_use)

    def close(self) -> None:
        """Give up every layer that is in use here."""
        self._store.close()

    async def _make(self, source: ImageSource, base: str, progress: _Progress) -> Base:
        match source:
            case BuildContext():
                return await self._build(source, base, progress)
            case ImageRef():
                return await self._bases.named(source.name, base, progress.log)
            case RootFolder():
                return await self._bases.at(source.path, progress.log)
            case HostRoot():
                return await self._bases.host()

    async def _build(self, context: BuildContext, stand_in: str, progress: _Progress) -> Base:
        where = context.path / context.dockerfile
        text, files = await asyncio.to_thread(_look_at, context)
        dockerfile = parse(text.decode("utf-8", "replace"), str(where))
        complication = needs_builder(dockerfile, files)
        if complication is None:
            base = await self._bases.named(base_name(dockerfile), stand_in, progress.log)
            if not base.config.triggers:
                return await self._build_on(base, dockerfile, files, progress)
            complication = (dockerfile.instructions[0], "its base image has ONBUILD triggers")
        # Loaded here: its libraries are heavy, and few files need it.
        from benchflow.sandbox.local.builders import build_elsewhere

        return await build_elsewhere(
            context, dockerfile, *complication, bases=self._bases, store=self._store, log=progress.log
        )

    async def _build_on(
        self, base: Base, dockerfile: Dockerfile, files: list[ContextFile], progress: _Progress
    ) -> Base:
        planned = plan(dockerfile, base.config, files)
        made, key = base, digest(self._flavor, base.key)
        for number, step in enumerate(planned.steps, 1):
            key = digest(key, await asyncio.to_thread(step.identity))
            progress.step = step.instruction.text
            label = f"[{number}/{len(planned.steps)}] {step.instruction.text}"
            path = await self._layer(key, step, label, dockerfile.where, made, progress)
            made = replace(made, key=key, layers=(path, *made.layers), kept=(*made.kept, key))
        return replace(made, config=planned.config)

    async def _layer(self, key: str, step: Step, label: str, where: str, below: Base, progress: _Progress) -> Path:
        async def make(folder: Path) -> Mapping[str, object]:
            async with self._slots:
                progress.log(label)
                spec = BoxSpec("build", below.layers, upper=folder, mounts=below.mounts)
                await carry_out(step, where, spec, engine=self._engine, log=progress.log)
            return {"text": step.instruction.text}

        layer = await self._store.ensure(key, make, on_wait=waiting(progress.log))
        return layer.path


def _look_at(context: BuildContext) -> tuple[bytes, list[ContextFile]]:
    """The build file and the listing of a build context."""
    return read_inside(context.path, context.dockerfile), context_files(context.path, context.dockerfile)


_images: dict[Engine, Images] = {}


class _Progress:
    """How far a build is, for its log and for the error when its time is over."""

    def __init__(self, log: Log | None) -> None:
        self.step = ""
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._log = log

    def log(self, line: str) -> None:
        self.tail.append(line)
        if self._log is not None:
            self._log(line)
