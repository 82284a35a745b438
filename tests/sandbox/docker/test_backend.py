"""The backend on real engines: many at once, what others do to our containers, and what is never touched."""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import SandboxError, SandboxGone, SandboxUnsupported
from benchflow.sandbox.base import HostRoot, ImageRef, Limits, Network, Owner, RootFolder, SandboxSpec
from benchflow.sandbox.docker import labels
from benchflow.sandbox.docker.backend import DockerBackend
from benchflow.sandbox.docker.probe import probe

if TYPE_CHECKING:
    from pathlib import Path

    import aiodocker

IMAGE = ImageRef("debian:bookworm-slim")
OFFLINE = SandboxSpec(IMAGE, network=Network("no-network"), owner=Owner("job", "rollout"))

AT_ONCE = 64

SERVE = r"""use IO::Socket::INET; $| = 1; my $s = IO::Socket::INET->new(LocalAddr => '0.0.0.0', Listen => 5) or die;
print $s->sockport, "\n"; while (my $c = $s->accept) { print $c 'of this rollout'; close $c }"""
ASK = r"""use IO::Socket::INET;
my $s = IO::Socket::INET->new(PeerAddr => $ARGV[0], PeerPort => $ARGV[1], Timeout => 2) or exit 1; print <$s>"""


async def test_sixty_four_at_once(backend: DockerBackend, engine: str, tmp_path: Path) -> None:
    async def life(number: int) -> bytes:
        async with backend.create(OFFLINE) as box:
            await box.put({"in": b"%d" % number}, "/srv")
            assert (await box.exec("cat /srv/in > /srv/out")).ok
            async with await box.open(["cat"]) as stream:
                await stream.write(b"x\n")
                assert await stream.stdout.readexactly(2) == b"x\n"
            await box.get("/srv/out", tmp_path / f"{number}")
        return (tmp_path / f"{number}").read_bytes()

    count = AT_ONCE if engine == "docker" else AT_ONCE // 4
    assert await asyncio.gather(*map(life, range(count))) == [b"%d" % number for number in range(count)]
    assert [info for info in await backend.list() if info.owner_pid == os.getpid()] == []


async def test_a_container_that_somebody_removed_is_gone(backend: DockerBackend, docker: aiodocker.Docker) -> None:
    async with backend.create(OFFLINE) as box:
        running = asyncio.create_task(box.exec("sleep 1000"))
        async with await box.open(["cat"]) as stream:
            await stream.write(b"x")
            await stream.stdout.readexactly(1)
            await docker.containers.container(box.id).delete(force=True)
            with pytest.raises(SandboxGone):
                await stream.wait()
        with pytest.raises(SandboxGone):
            await running
        for call in (box.exec("true"), box.read("/etc/passwd"), box.put({"x": b""}, "/srv"), box.kill_processes()):
            with pytest.raises(SandboxGone):
                await call


async def test_a_container_that_somebody_killed_is_gone(backend: DockerBackend, docker: aiodocker.Docker) -> None:
    async with backend.create(OFFLINE) as box:
        running = asyncio.create_task(box.exec("sleep 1000"))
        assert (await box.exec("until grep -qs sleep.1000 /proc/[0-9]*/cmdline; do sleep 0.05; done", timeout=60)).ok
        await docker.containers.container(box.id).kill()
        with pytest.raises(SandboxGone):
            await running
        with pytest.raises(SandboxGone):
            await box.exec("true")


async def test_killing_the_sleep_does_not_end_the_sandbox(backend: DockerBackend) -> None:
    async with backend.create(OFFLINE) as box:
        script = "for f in /proc/[0-9]*/comm; do read c <$f; p=${f#/proc/}; [ $c = sleep ] && kill -9 ${p%/comm}; done"
        for _ in range(3):
            await box.exec(script, user=0)
        assert (await box.exec("echo alive")).text == "alive\n"
        await box.kill_processes()
        assert (await box.exec("echo alive")).text == "alive\n"


async def test_containers_of_others_are_never_touched(backend: DockerBackend, docker: aiodocker.Docker) -> None:
    marks = labels.of_sandbox("bf-nobody", Owner("job", "rollout")) | {labels.OWNER_PID: "1", labels.OWNER_START: "0"}
    body = {"Image": IMAGE.name, "Cmd": ["sleep", "1000"]}
    foreign = await docker.containers.create({**body, "Labels": {"some": "label"}})
    look_alike = await docker.containers.create({**body, "Labels": marks})

    async def reaped() -> list[bool]:
        """Whether an orphan is to be reaped, is reaped among older ones, and is reaped; it is gone in the end."""
        name = f"bf-orphan-{secrets.token_hex(4)}"
        orphan = await docker.containers.create({**body, "Labels": {**marks, labels.ID: name}}, name=name)
        found = [name in [info.id for info in await backend.reap(dry_run=True)]]
        found += [name in [info.id for info in await backend.reap(older_than=1000)]]
        found += [name in [info.id for info in await backend.reap()]]
        with pytest.raises(Exception, match=r"(?i)no such container|no container with name"):
            await orphan.show()
        return found

    try:
        assert [info.id for info in await backend.list() if info.id.startswith("bf-nobody")] == []
        # Whoever else uses the engine now, such as a job that begins, reaps too and may come first.
        assert [True, False, True] in [await reaped() for _ in range(3)]
        assert await foreign.show()
        assert await look_alike.show()
    finally:
        for container in (foreign, look_alike):
            await container.delete(force=True)


async def test_the_snapshot_of_a_fork_goes_with_it(backend: DockerBackend, docker: aiodocker.Docker) -> None:
    async with backend.create(OFFLINE) as box:
        await box.exec("echo 1 > /file")
        async with await box.fork() as fork:
            await fork.exec("echo 2 >> /file")
            assert (await backend.disk_use())["fork images"] > 0
            async with await fork.fork() as second:
                await fork.stop()
                assert await second.read("/file") == b"1\n2\n"
    images = await docker.images.list(all="true")
    left = [image for image in images if (image["Labels"] or {}).get(labels.OWNER_PID) == str(os.getpid())]
    assert left == []


async def test_what_docker_cannot_do_is_refused(backend: DockerBackend, tmp_path: Path) -> None:
    await backend.check()
    for spec in (
        SandboxSpec(HostRoot()),
        SandboxSpec(RootFolder(tmp_path)),
        SandboxSpec(IMAGE, limits=Limits(gpus=1)),
        SandboxSpec(IMAGE, network=Network("allowlist", ("example.org",))),
        SandboxSpec(IMAGE, limits=Limits(storage_mb=100)),
    ):
        with pytest.raises(SandboxUnsupported):
            backend.create(spec)


async def test_words_that_the_engine_does_not_take(backend: DockerBackend) -> None:
    async with backend.create(OFFLINE) as box:
        for argv in (["echo", "nul\0"], ["echo", os.fsdecode(b"\xff")], []):
            with pytest.raises(SandboxError):
                await box.exec(argv)
        with pytest.raises(SandboxError, match="plain relative path"):
            await box.put({"../x": b""}, "/srv")


async def test_localhost_is_known_without_a_network(backend: DockerBackend) -> None:
    async with backend.create(OFFLINE) as box:
        assert (await box.exec(["getent", "hosts", "localhost"])).ok
        assert (await box.exec("getent hosts $(hostname 2>/dev/null || cat /proc/sys/kernel/hostname)")).ok


async def test_the_public_network_is_the_shared_one(
    backend: DockerBackend, docker: aiodocker.Docker, engine: str
) -> None:
    async with backend.create(SandboxSpec(IMAGE)) as box:
        assert (await box.exec("sed 1,2d /proc/net/dev | cut -d: -f1")).text.split().count("lo") == 1
        assert "eth0" in (await box.exec("cat /proc/net/dev")).text
        shown = await docker.containers.container(box.id).show()
        async with backend.create(SandboxSpec(IMAGE)) as other:
            also = await docker.containers.container(other.id).show()
    networks = [set(one["NetworkSettings"]["Networks"]) for one in (shown, also)]
    assert networks == [{"podman" if engine == "podman" else "benchflow"}] * 2


@pytest.mark.parametrize("engine", [pytest.param("docker", marks=pytest.mark.needs("docker"))], indirect=True)
async def test_no_sandbox_reaches_another_on_the_network_they_share(
    backend: DockerBackend, docker: aiodocker.Docker
) -> None:
    """It reaches itself by the same address, so that what is refused is the way and not the answer."""
    async with backend.create(SandboxSpec(IMAGE)) as box, backend.create(SandboxSpec(IMAGE)) as other:
        shown = await docker.containers.container(box.id).show()
        (attached,) = shown["NetworkSettings"]["Networks"].values()
        async with await box.open(["perl", "-e", SERVE]) as server:
            port = (await server.stdout.readline()).decode().strip()
            ask = ["perl", "-e", ASK, attached["IPAddress"], port]
            assert (await box.exec(ask)).stdout == b"of this rollout"
            assert (await other.exec(ask)).stdout == b""
            assert (await other.exec(["perl", "-e", ASK, box.id, port])).stdout == b""


async def test_an_engine_behind_tcp(engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = os.environ["DOCKER_HOST"].removeprefix("unix://")

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, downstream = await asyncio.open_unix_connection(path)
        await asyncio.gather(carry(reader, downstream), carry(upstream, writer))
        for end in (writer, downstream):
            end.close()
            with suppress(ConnectionError):
                await end.wait_closed()

    async with await asyncio.start_server(forward, "127.0.0.1", 0) as server:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        backend = DockerBackend()
        capabilities = await backend.check()
        assert (capabilities.mounts, capabilities.listen) == (False, False)
        async with backend.create(OFFLINE) as box:
            assert (await box.exec(["cat"], stdin=b"x" * 300_000)).stdout == b"x" * 300_000
            await box.put({"file": b"1"}, "/srv")
            await box.get("/srv/file", tmp_path / "file")
            assert (await box.exec("sleep 1000", timeout=1)).timed_out
        assert (tmp_path / "file").read_bytes() == b"1"
        await backend.close()


async def test_the_probe_says_what_is_there(engine: str) -> None:
    checks = {check.name: check for check in await probe()}
    assert checks["engine"].ok
    assert engine.capitalize() in checks["engine"].detail
    assert {"engine", "storage driver", "limits", "access"} == set(checks)


async def test_the_probe_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    (check,) = await probe()
    assert not check.ok
    assert "none.sock" in check.detail
    assert check.fix
