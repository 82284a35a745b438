"""What images are built on: where the root file system behind a name in FROM comes from.

In this order: `scratch` is empty; an image that a container engine here has is exported once and kept; one that was
kept before is used also without the engine; one that the engine can pull is pulled. Where none of these gives it,
the chosen base stands in, and the image says so in its notes: that is never silent.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from benchflow.errors import BenchflowError, ConfigError, SandboxBuildError, SandboxUnavailable
from benchflow.sandbox.docker.sockets import candidates
from benchflow.sandbox.local.archives import flatten
from benchflow.sandbox.local.hostroot import host_view, limits, trust_environment
from benchflow.sandbox.local.plan import ImageConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchflow.sandbox.base import Mount
    from benchflow.sandbox.docker.engine import Engine as ContainerEngine
    from benchflow.sandbox.local.engine import Engine
    from benchflow.sandbox.local.layers import Layer, LayerStore
    from benchflow.sandbox.local.steps import Log

BASE_VARIABLE = "BENCHFLOW_LOCAL_BASE"
"""`host`, an unpacked root file system, or a tar of one: what stands in for images that cannot be had."""

PRIVILEGED = "root"
"""The flavor of an engine that runs as root, without a user namespace."""


@dataclass(frozen=True, slots=True)
class Base:
    """Something to build on. `key` identifies its content; `kept` are the keys of its layers in the store."""

    key: str
    layers: tuple[Path, ...] = ()
    config: ImageConfig = field(default_factory=ImageConfig)
    kept: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Missing:
    why: str


def digest(*parts: object) -> str:
    """A short name for what `parts` say. Equal parts give equal names, on every machine."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]


class Bases:
    """The bases of one engine, each had once. Knows nothing of Dockerfiles."""

    def __init__(self, engine: Engine, store: LayerStore, names: Path, flavor: str) -> None:
        self.flavor = flavor
        self._engine = engine
        self._store = store
        self._names = names
        self._had: dict[str, Base | _Missing] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def named(self, name: str, stand_in: str, log: Log) -> Base:
        """The image `name`, or what `stand_in` names in its place; where it came from holds as long as this object.

        Raises SandboxBuildError, and ConfigError when `stand_in` names nothing.
        """
        if name == "scratch":
            return Base("scratch")
        async with self._locks[name]:
            found = self._had.get(name) or await self._find(name, log)
            self._had[name] = found
        if isinstance(found, Base):
            return found
        what, base = await self._stand_in(stand_in, log)
        note = f"FROM {name} could not be had ({found.why}); {what} stands in"
        log(note)
        return replace(base, notes=(note, *base.notes))

    async def host(self) -> Base:
        """The host's own root. Raises SandboxUnavailable where it cannot be shown."""
        privileged = self.flavor == PRIVILEGED
        async with self._locks["/"]:
            kept = self._names.with_name("survey")
            view = await asyncio.to_thread(host_view, privileged=privileged, kept=kept)
        key = digest("host", self.flavor, view.key)

        async def make(folder: Path) -> Mapping[str, object]:
            await asyncio.to_thread(view.make, folder)
            return {"text": "the host's root"}

        layer = await self._store.ensure(key, make)
        config = ImageConfig(env=trust_environment(os.environ))
        mounts, notes = view.mounts(layer.path), limits(privileged=privileged)
        return Base(key, view.layers(layer.path), config, (key,), mounts, notes)

    async def at(self, path: Path, log: Log) -> Base:
        """A root file system on this machine: a folder, a tar, or an image archive. Raises SandboxBuildError."""
        place, identity = _identify(path)
        key = digest("path", self.flavor, str(place), identity)
        if identity[0] == "folder":
            return Base(key, (place,))

        async def make(folder: Path) -> Mapping[str, object]:
            log(f"unpacking {path}")
            return await self.unpack(path, folder)

        return kept_base(await self._store.ensure(key, make, on_wait=waiting(log)))

    async def unpack(self, archive: Path, folder: Path) -> dict[str, object]:
        """Unpack a tar or an image archive into the empty `folder`, and say what it is."""
        flat = folder.parent / "flat.tar"
        config = await asyncio.to_thread(flatten, archive, flat)
        await self._engine.unpack(archive if config is None else flat, folder)
        flat.unlink(missing_ok=True)
        return {"text": archive.name, "config": asdict(config or ImageConfig())}

    # -- names -----------------------------------------------------------------------------------------------

    async def _find(self, name: str, log: Log) -> Base | _Missing:
        if not _engine_may_be_there():
            return self._remembered(name) or _Missing("no container engine answers")
        # Loaded here: its libraries are heavy, and many sandboxes need no container engine.
        from benchflow.sandbox.local import containers

        async with containers.container_engine() as engine:
            if engine is None:
                return self._remembered(name) or _Missing("no container engine answers")
            try:
                identity = await containers.image_id(engine, name)
                if identity is None:
                    if remembered := self._remembered(name):
                        return remembered
                    identity = await containers.pulled(engine, name, log)
                base = await self._exported(engine, name, identity, log)
            except (*containers.ENGINE_ERRORS, SandboxBuildError) as error:
                return self._remembered(name) or _Missing(_reason(error))
        self._remember(name, base)
        return base

    async def _exported(self, engine: ContainerEngine, image: str, identity: str, log: Log) -> Base:
        from benchflow.sandbox.local import containers

        async def make(folder: Path) -> Mapping[str, object]:
            log(f"exporting {image} (once)")
            archive = folder.parent / "image.tar"
            config = await containers.export(engine, image, archive)
            about = await self.unpack(archive, folder)
            archive.unlink()
            return {**about, "text": image, "config": asdict(config)}

        return kept_base(await self._store.ensure(digest("image", self.flavor, identity), make, on_wait=waiting(log)))

    def _remember(self, name: str, base: Base) -> None:
        path = self._name_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps({"name": name, "key": base.key}))
        fresh.replace(path)

    def _remembered(self, name: str) -> Base | None:
        try:
            key = str(json.loads(self._name_path(name).read_text())["key"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        layer = self._store.find(key)
        return kept_base(layer) if layer else None

    def _name_path(self, name: str) -> Path:
        return self._names / digest(full_name(name), self.flavor)

    async def _stand_in(self, chosen: str, log: Log) -> tuple[str, Base]:
        if chosen == "host":
            return "the host's root", await self.host()
        try:
            _identify(Path(chosen))
        except SandboxBuildError:
            raise ConfigError(
                f"{BASE_VARIABLE} is {chosen!r}, which does not exist",
                hint=f"set {BASE_VARIABLE} to `host`, to an unpacked root file system, or to a tar of one",
            ) from None
        return chosen, await self.at(Path(chosen), log)


def _reason(error: Exception) -> str:
    """What went wrong, on one line."""
    text = error.message if isinstance(error, BenchflowError) else str(error)
    return next(iter(text.strip().splitlines()), type(error).__name__)


def _identify(path: Path) -> tuple[Path, tuple[str | int, ...]]:
    """Where a path leads, and what tells its content from another."""
    try:
        place = path.resolve(strict=True)
        info = place.stat()
    except OSError as error:
        raise SandboxBuildError(f"{path}: {error.strerror or error}", backend="local") from None
    return place, ("folder" if place.is_dir() else "file", info.st_ino, info.st_size, info.st_mtime_ns)


def full_name(name: str) -> str:
    """One spelling for the names that mean the same image."""
    for prefix in ("docker.io/", "library/"):
        name = name.removeprefix(prefix)
    last = name.rpartition("/")[2]
    return name if ":" in last or "@" in last else f"{name}:latest"


def kept_base(layer: Layer) -> Base:
    """A base that is one layer of the store."""
    about = cast("dict[str, object]", layer.about.get("config") or {})
    config = ImageConfig(
        env=cast("dict[str, str]", about.get("env") or {}),
        workdir=str(about.get("workdir") or "/"),
        user=str(about.get("user") or ""),
        shell=tuple(cast("list[str]", about.get("shell") or ImageConfig().shell)),
        triggers=tuple(cast("list[str]", about.get("triggers") or [])),
    )
    return Base(layer.key, (layer.path,), config, (layer.key,))


def waiting(log: Log) -> Callable[[], None]:
    return lambda: log("waiting for another process that is making this layer")


def _engine_may_be_there() -> bool:
    try:
        return bool(candidates())
    except SandboxUnavailable:
        return False
