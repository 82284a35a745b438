"""The local backend: what it refuses beforehand, what it lists, what it reaps."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from benchflow.errors import ConfigError, SandboxError, SandboxUnavailable, SandboxUnsupported
from benchflow.sandbox.base import Limits, Network, Owner, RootFolder, Sandbox, SandboxSpec
from benchflow.sandbox.local import network
from benchflow.sandbox.local.backend import LocalBackend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.needs("local", "rootfs")


@pytest_asyncio.fixture
async def backend(tmp_path: Path) -> AsyncIterator[LocalBackend]:
    backend = LocalBackend(root=tmp_path / "state")
    yield backend
    await backend.close()


@pytest.fixture
def plain(rootfs: Path) -> SandboxSpec:
    return SandboxSpec(RootFolder(rootfs), network=Network("no-network"), owner=Owner("a job", "a rollout"))


async def test_what_it_lacks_is_refused(backend: LocalBackend, plain: SandboxSpec) -> None:
    for spec in (
        replace(plain, limits=Limits(gpus=1)),
        replace(plain, limits=Limits(storage_mb=10)),
        replace(plain, network=Network("allowlist", ("example.org",))),
    ):
        with pytest.raises(SandboxUnsupported):
            backend.create(spec)


def test_an_unknown_storage_is_a_mistake_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHFLOW_LOCAL_STORAGE", "floppy")
    with pytest.raises(ConfigError, match="floppy"):
        LocalBackend()


async def test_a_place_where_nothing_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    backend = LocalBackend(root=tmp_path / "file" / "below")
    with pytest.raises(SandboxUnavailable):
        await backend.check()
    await backend.close()


async def test_a_place_that_overlayfs_cannot_write() -> None:
    """/proc stands for any file system that cannot hold layers."""
    backend = LocalBackend(root=Path("/proc/self/nowhere"))
    with pytest.raises(SandboxUnavailable):
        await backend.check()
    await backend.close()


async def test_before_and_after(backend: LocalBackend, plain: SandboxSpec) -> None:
    sandbox = backend.create(plain)
    assert isinstance(sandbox, Sandbox)
    with pytest.raises(SandboxError, match="not started"):
        await sandbox.exec(["true"])
    await sandbox.start()
    await sandbox.start()
    assert sandbox.workdir == "/"
    await sandbox.stop()
    with pytest.raises(SandboxError):
        await sandbox.exec(["true"])
    with pytest.raises(SandboxError):
        await sandbox.start()


async def test_list_and_reap(backend: LocalBackend, plain: SandboxSpec, tmp_path: Path) -> None:
    other = LocalBackend(root=tmp_path / "state")
    async with backend.create(plain) as sandbox:
        for one in (backend, other):
            (info,) = await one.list()
            assert (info.id, info.job, info.rollout, info.state) == (sandbox.id, "a job", "a rollout", "running")
        assert await other.reap() == []
        assert [info.id for info in await other.reap(everything=True, dry_run=True)] == [sandbox.id]
        assert [info.id for info in await other.reap(everything=True, older_than=1000)] == []
        assert (await sandbox.exec(["true"])).ok
        assert [info.id for info in await other.reap(everything=True)] == [sandbox.id]
        with pytest.raises(SandboxError):
            await sandbox.exec(["true"])
        assert await backend.list() == []
    await other.close()


async def test_reaping_everything_stops_our_own(backend: LocalBackend, plain: SandboxSpec) -> None:
    sandbox = backend.create(plain)
    await sandbox.start()
    assert [info.id for info in await backend.reap(everything=True)] == [sandbox.id]
    assert await backend.list() == []
    await sandbox.stop()


async def test_many_at_once(backend: LocalBackend, plain: SandboxSpec) -> None:
    async def life(number: int) -> str:
        async with backend.create(plain) as sandbox:
            await sandbox.put({"n": str(number).encode()}, "/srv")
            async with await sandbox.fork() as fork:
                return (await fork.exec(["cat", "/srv/n"])).text

    assert await asyncio.gather(*(life(number) for number in range(24))) == [str(number) for number in range(24)]


async def test_a_network_of_its_own(backend: LocalBackend, plain: SandboxSpec) -> None:
    """With pasta the way out is there, and the host's loopback is not on it."""
    if network.missing():
        pytest.skip(network.missing())
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connect = "exec 3<>/dev/tcp/{}/{}"
    async with server, backend.create(replace(plain, network=Network("public"))) as sandbox:
        assert sandbox.notes == ()
        route = (await sandbox.exec("cut -f1,2,3 /proc/net/route | sed 1d")).text.split()
        assert route
        gateway = ".".join(str(byte) for byte in bytes.fromhex(route[2])[::-1])
        for address in ("127.0.0.1", gateway):
            result = await sandbox.exec(["bash", "-c", connect.format(address, port)], timeout=10)
            assert not result.ok, (address, result)
