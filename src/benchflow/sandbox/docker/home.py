"""What the sandboxes of one backend share: the engine, its images, what it can do, and who is alive."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchflow.errors import SandboxUnsupported
from benchflow.sandbox.base import BuildContext, Capabilities, ImageRef
from benchflow.sandbox.docker import engine as engines
from benchflow.sandbox.docker.image import Images
from benchflow.sandbox.docker.near import Near
from benchflow.sandbox.docker.network import shared_network
from benchflow.sandbox.docker.sockets import BACKEND
from benchflow.sandbox.local.guest import restrain

if TYPE_CHECKING:
    from benchflow.sandbox.base import SandboxSpec
    from benchflow.sandbox.docker.box import DockerSandbox
    from benchflow.sandbox.docker.engine import Engine, Json
    from benchflow.sandbox.docker.place import Init

NEAR_SETTING = "BENCHFLOW_DOCKER_NEAR"
"""Set it to 0 to do everything through the engine's API, also where the kernel could be asked directly."""


class Home:
    """Connects on first use, in the event loop of that use."""

    def __init__(self) -> None:
        self.live: set[DockerSandbox] = set()
        self.init: Init | None = None
        self.capabilities: Capabilities | None = None
        self._connecting = asyncio.Lock()
        self._joining = asyncio.Lock()
        self._engine: Engine | None = None
        self._images: Images | None = None
        self._near = self.wants_near()

    @staticmethod
    def wants_near() -> bool:
        """Whether containers of a local engine are reached through the kernel."""
        return os.geteuid() == 0 and os.environ.get(NEAR_SETTING) != "0"

    async def engine(self) -> Engine:
        """The engine. Raises SandboxUnavailable."""
        async with self._connecting:
            if self._engine is None:
                self._engine = await engines.connect()
                self._images = Images(self._engine)
                self.capabilities = capabilities(self._engine, near=self._near and self._engine.local)
            return self._engine

    async def images(self) -> Images:
        """The engine's images. Raises SandboxUnavailable."""
        await self.engine()
        assert self._images is not None
        return self._images

    async def network(self) -> str:
        """The network of sandboxes that have one (see `shared_network`). Raises SandboxUnavailable and DockerError."""
        engine = await self.engine()
        async with self._joining:
            return await shared_network(engine)

    def near(self, container: str, first: int) -> Near | None:
        """The way into a container through the kernel, where there is one."""
        if self._near and self._engine is not None and self._engine.local and first > 0:
            try:
                return Near(container, first)
            except OSError:
                return None
        return None

    def check(self, spec: SandboxSpec) -> None:
        """Raises SandboxUnsupported for what a spec asks and this engine, as far as it is known, lacks."""
        if problem := unsupported(spec, self.capabilities):
            raise SandboxUnsupported(problem, backend=BACKEND, sandbox=spec.name, phase="create")

    async def close(self) -> None:
        engine, self._engine = self._engine, None
        self._images = None
        self.init = None
        self.capabilities = None
        if engine is not None:
            await engine.close()


def capabilities(engine: Engine, *, near: bool) -> Capabilities:
    """What an engine can do, by its own word and by where it is."""
    info = engine.info
    limits: set[Literal["cpus", "memory", "storage", "pids"]] = set()
    if info.get("CpuCfsQuota"):
        limits.add("cpus")
    if info.get("MemoryLimit"):
        limits.add("memory")
    if info.get("PidsLimit"):
        limits.add("pids")
    if _has_quota(info):
        limits.add("storage")
    return Capabilities(
        fork=True,
        mounts=engine.local,
        listen=near,
        network=frozenset({"public", "no-network"}),
        limits=frozenset(limits),
        changes=near and info.get("Driver") in {"overlay", "overlay2"},
        restrain=near and restrain.SUPPORTED,
    )


def _has_quota(info: Json) -> bool:
    """Whether the storage driver can bound a container: overlay only where its file system keeps project quotas."""
    driver = str(info.get("Driver") or "")
    if driver in {"btrfs", "zfs"}:
        return True
    backing = dict(entry for entry in info.get("DriverStatus") or () if len(entry) == 2).get("Backing Filesystem")
    if driver not in {"overlay2", "overlay"} or backing != "xfs":
        return False
    return _mount_options(Path(str(info.get("DockerRootDir") or "/"))) & {"prjquota", "pquota"} != set()


def _mount_options(folder: Path) -> set[str]:
    """The options of the file system that a folder of this machine lies in."""
    best, options = Path("/"), set[str]()
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    for line in lines:
        fields = line.split()
        point = Path(fields[4])
        if folder.is_relative_to(point) and len(point.parts) >= len(best.parts):
            best, options = point, set(fields[-1].split(","))
    return options


def unsupported(spec: SandboxSpec, known: Capabilities | None) -> str:
    """What a spec asks that is lacking, or nothing."""
    if not isinstance(spec.image, BuildContext | ImageRef):
        return f"takes a Dockerfile or the name of an image, not {type(spec.image).__name__}"
    if spec.limits.gpus:
        return "cannot give GPUs to a sandbox"
    if spec.network.mode == "allowlist":
        return "cannot limit the network to a list of hosts"
    return _beyond(spec, known) if known else ""


def _beyond(spec: SandboxSpec, known: Capabilities) -> str:
    if spec.mounts and not known.mounts:
        return "cannot mount folders of this machine: the engine is on another one"
    asked = {"cpus": spec.limits.cpus, "memory": spec.limits.memory_mb, "storage": spec.limits.storage_mb}
    lacking = [name for name, value in asked.items() if value is not None and name not in known.limits]
    return f"cannot limit {' or '.join(lacking)} with this engine" if lacking else ""
