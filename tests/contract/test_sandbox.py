"""Every backend of ours passes the contract suite."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import aiodocker
import pytest
import pytest_asyncio

from benchflow.sandbox.base import HostRoot, ImageRef, RootFolder
from benchflow.sandbox.docker import labels
from benchflow.testing.sandbox_contract import SandboxContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchflow.sandbox.base import Backend, ImageSource
    from benchflow.testing.contract.world import Record

BASE_IMAGE = "debian:bookworm-slim"
PODMAN_SOCKET = Path("/run/podman/podman.sock")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchflow" / "test"


class EngineContract(SandboxContract):
    """What Docker and Podman have in common."""

    host: ClassVar[str | None] = None

    @pytest_asyncio.fixture(scope="class", loop_scope="class")
    @classmethod
    async def backend(cls) -> AsyncIterator[Backend]:
        from benchflow.sandbox.docker.backend import DockerBackend

        with pytest.MonkeyPatch.context() as patch:
            if cls.host:
                patch.setenv("DOCKER_HOST", cls.host)
            backend = DockerBackend()
            yield backend
            await backend.close()

    @pytest.fixture(scope="class")
    @classmethod
    def image(cls) -> ImageSource:
        return ImageRef(BASE_IMAGE)

    @pytest.fixture(scope="class")
    @classmethod
    def base_name(cls) -> str | None:
        return BASE_IMAGE

    @classmethod
    async def extras(cls, backend: Backend, record: Record) -> frozenset[str]:
        """Images behind forks, which carry the fork's id in their names."""
        async with aiodocker.Docker(url=cls.host) as docker:
            images = await docker.images.list(filters={"label": [f"{labels.IMAGE}=fork"]})
        names = [name for image in images for name in image["RepoTags"] or ()]
        return frozenset(f"image {name}" for name in names if any(sandbox in name for sandbox in record.ids))


@pytest.mark.needs("docker")
class TestDocker(EngineContract):
    pass


@pytest.mark.needs("podman")
class TestPodman(EngineContract):
    host = f"unix://{PODMAN_SOCKET}"
    cancel_points = 8


class LocalContract(SandboxContract):
    cancel_points = 60

    @classmethod
    async def extras(cls, backend: Backend, record: Record) -> frozenset[str]:
        """Nothing; but networks that are kept for sandboxes to come are no leftovers of those that were."""
        from benchflow.sandbox.local.backend import LocalBackend

        assert isinstance(backend, LocalBackend)
        await backend.engine.forget_networks()
        return frozenset()


@pytest.mark.needs("local", "rootfs")
class TestLocal(LocalContract):
    crowd = 64

    @pytest_asyncio.fixture(scope="class", loop_scope="class")
    @classmethod
    async def backend(cls) -> AsyncIterator[Backend]:
        from benchflow.sandbox.local.backend import LocalBackend

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BENCHFLOW_LOCAL_BASE", str(unpacked_base()))
            backend = LocalBackend()
            yield backend
            await backend.close()

    @pytest.fixture(scope="class")
    @classmethod
    def image(cls) -> ImageSource:
        return RootFolder(unpacked_base())

    @pytest.fixture(scope="class")
    @classmethod
    def base_name(cls) -> str | None:
        return BASE_IMAGE

    @pytest.fixture(scope="class")
    @classmethod
    def broken_image(cls, tmp_path_factory: pytest.TempPathFactory) -> ImageSource:
        return RootFolder(tmp_path_factory.mktemp("broken") / "missing")


@pytest.mark.needs("local")
@pytest.mark.usefixtures("host_root_stays")
class TestLocalOnTheHostsRoot(LocalContract):
    """Over the host's own root, writing to memory: the other way in which the local backend can be used."""

    @pytest_asyncio.fixture(scope="class", loop_scope="class")
    @classmethod
    async def backend(cls) -> AsyncIterator[Backend]:
        from benchflow.sandbox.local.backend import LocalBackend

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BENCHFLOW_LOCAL_STORAGE", "tmpfs")
            backend = LocalBackend()
            yield backend
            await backend.close()

    @pytest.fixture(scope="class")
    @classmethod
    def image(cls) -> ImageSource:
        return HostRoot()

    @pytest.fixture(scope="class")
    @classmethod
    def broken_image(cls, tmp_path_factory: pytest.TempPathFactory) -> ImageSource:
        return RootFolder(tmp_path_factory.mktemp("broken") / "missing")


def unpacked_base() -> Path:
    """The root file system that scripts/base-image.sh makes, unpacked once and kept."""
    archive, folder = CACHE / "bookworm.tar", CACHE / "bookworm"
    with (CACHE / "bookworm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(mode=0o755)
            subprocess.run(["tar", "-xpf", archive, "-C", partial, "--exclude=./dev/*"], check=True)
            partial.rename(folder)
    return folder
