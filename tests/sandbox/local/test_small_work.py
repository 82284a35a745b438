"""What the first process of a box does itself, because a child would cost much more, and what it leaves to one."""

from __future__ import annotations

import os
import secrets
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import SandboxError
from benchflow.sandbox.base import Mount
from benchflow.sandbox.local.guest import wire
from benchflow.sandbox.local.guest.files import copy_data
from benchflow.sandbox.local.guest.messages import HANDED_OVER
from benchflow.sandbox.local.guest.work import SMALL_FILES
from benchflow.sandbox.local.transfer import copy_few

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchflow.sandbox.local.engine import BoxSpec, Engine

pytestmark = pytest.mark.needs("local", "rootfs")


async def test_files_of_other_file_systems_are_read_inside(
    engine: Engine, spec: Callable[..., BoxSpec], tmp_path: Path
) -> None:
    """A file of /proc shows its reader's world: the host must not be its reader, whatever link led there."""
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "file").write_bytes(b"mounted")
    box = await engine.start_box(spec(hostname="inside", mounts=(Mount(mounted, "/mounted"),)))
    assert (await box.exec("mkdir /links && ln -s /proc/sys/kernel /links/kernel && ln -s /etc /links/etc")).ok
    await box.put({"file": b"own"}, "/")
    assert await box.read("/links/kernel/hostname") == b"inside\n"
    await box.get("/links/kernel/hostname", tmp_path / "hostname")
    assert (tmp_path / "hostname").read_bytes() in {b"", b"inside\n"}
    for path, content in (("/file", b"own"), ("/mounted/file", b"mounted"), ("/links/etc/hostname", b"inside\n")):
        assert await box.read(path) == content
        await box.get(path, tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == content
    await box.stop()


async def test_sizes_on_both_sides_of_small(engine: Engine, spec: Callable[..., BoxSpec], tmp_path: Path) -> None:
    box = await engine.start_box(spec())
    for count in (SMALL_FILES, SMALL_FILES + 1):
        await box.put({f"{count}/{n}": b"x" * n for n in range(count)}, "/many")
        assert (await box.exec(f"ls /many/{count} | wc -l")).text == f"{count}\n"
    for size in (0, HANDED_OVER, HANDED_OVER + 1):
        content = os.urandom(size)
        await box.put({"file": content}, "/sized")
        assert await box.read("/sized/file", limit=size) == content
        await box.get("/sized/file", tmp_path / "sized")
        assert (tmp_path / "sized").read_bytes() == content
    with pytest.raises(SandboxError, match="longer than 9 bytes"):
        await box.read("/sized/file", limit=9)
    await box.stop()


@pytest.mark.parametrize("more", ["true", "mkdir /few/sub", "ln -s a /few/link", "ln /few/a /few/again"])
async def test_a_folder_of_few_files_comes_out_like_any_other(
    engine: Engine, spec: Callable[..., BoxSpec], tmp_path: Path, more: str
) -> None:
    """Plain files the host copies itself; with anything else among them the box does, and nobody can tell."""
    box = await engine.start_box(spec())
    make = "mkdir /few && cd /few && echo 1 > a && echo 2 > .b && chmod 0640 a && chmod 4711 .b && touch -d @1000000 a"
    assert (await box.exec(f"{make} && {more}")).ok
    there = tmp_path / "few"
    await box.get("/few", there)
    assert {"a": (there / "a").read_text(), ".b": (there / ".b").read_text()} == {"a": "1\n", ".b": "2\n"}
    assert [oct((there / name).stat().st_mode & 0o7777) for name in ("a", ".b")] == ["0o640", "0o711"]
    assert (there / "a").stat().st_mtime == 1000000
    assert (there / "again").exists() == ("again" in more)
    await box.get("/few", there)
    await box.exec("rm -r /few; mkdir /few")
    await box.get("/few", tmp_path / "none" / "at" / "all")
    assert list((tmp_path / "none" / "at" / "all").iterdir()) == []
    await box.stop()


def test_no_name_of_a_file_leads_out(tmp_path: Path) -> None:
    """The list comes from inside a box."""
    for name in ("../out", "/out", "..", "", "a\0b"):
        with pytest.raises(SandboxError, match="no name of a file"):
            copy_few([(name, 0o600, 0)], [os.open(os.devnull, os.O_RDONLY)], tmp_path / "in")
    assert [path.name for path in tmp_path.rglob("*")] == ["in"]


async def test_what_goes_wrong_is_said_and_the_box_lives(engine: Engine, spec: Callable[..., BoxSpec]) -> None:
    box = await engine.start_box(spec())
    with pytest.raises(SandboxError, match="unknown user"):
        await box.put({"a": b""}, "/x", owner="nobody-of-that-name")
    with pytest.raises(SandboxError, match="passwd"):
        await box.put({"a": b""}, "/etc/passwd")
    with pytest.raises(FileNotFoundError):
        await box.read("/no/such")
    with pytest.raises(FileNotFoundError):
        await box.get("/no/such", Path("unused"))
    assert (await box.exec("mkfifo /pipe && ln -s loop /loop")).ok
    for path in ("/pipe", "/loop", "/etc"):
        with pytest.raises(SandboxError):
            await box.read(path)
    assert (await box.exec(["true"])).ok
    await box.stop()


@pytest.mark.parametrize("user", [None, "nobody"])
async def test_a_program_is_looked_for_in_the_path_it_is_given(
    user: str | None, engine: Engine, spec: Callable[..., BoxSpec]
) -> None:
    box = await engine.start_box(spec())
    await box.put({"closed/tool": b"#!/bin/sh\necho closed\n"}, "/opt")
    assert (await box.exec("mkdir /opt/open && printf '#!/bin/sh\\necho open' > /opt/open/tool")).ok
    assert (await box.exec("chmod 755 /opt/open/tool")).ok
    found = await box.exec(["tool"], user=user, env={"PATH": "/nowhere:/opt/closed:/opt/open"})
    assert (found.exit_code, found.text) == (0, "open\n")
    codes = [
        (await box.exec(argv, user=user, cwd=cwd, env={"PATH": "/opt/closed"})).exit_code
        for argv, cwd in (
            (["tool"], "/"),
            (["absent"], "/"),
            (["/absent"], "/"),
            (["/bin/true"], "/absent"),
        )
    ]
    assert codes == [126, 127, 127, 126]
    await box.stop()


@pytest.fixture
def containers_mount() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("nothing can be mounted here")
    point = Path("/run/netns") / f"benchflow-test-{secrets.token_hex(4)}"
    point.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "theirs", str(point)], check=True)
    yield point
    subprocess.run(["umount", str(point)], check=True)
    point.rmdir()


def _mounts(pid: int) -> str:
    return Path(f"/proc/{pid}/mountinfo").read_text()


async def test_mounts_of_containers_are_not_held(
    engine: Engine, spec: Callable[..., BoxSpec], containers_mount: Path
) -> None:
    box = await engine.start_box(spec())
    helper = engine._helper
    assert helper is not None
    assert str(containers_mount) in _mounts(os.getpid())
    assert str(containers_mount) not in _mounts(helper._process.pid)
    await box.stop()


def test_descriptors_that_arrive_stay_in_this_process() -> None:
    near, far = wire.pair()
    with near, far:
        wire.send(near, {}, [0, 1])
        _, received = wire.receive(far)
    assert [os.get_inheritable(descriptor) for descriptor in received] == [False, False]
    wire.close_all(received)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_copy_has_an_end(sparse: bool, tmp_path: Path) -> None:
    with (tmp_path / "source").open("w+b") as source, (tmp_path / "target").open("w+b") as target:
        source.write(b"start")
        source.seek(1 << 20 if sparse else 5)
        source.write(b"end")
        source.flush()
        copy_data(source.fileno(), target.fileno(), at_most=6)
    assert (tmp_path / "target").read_bytes() == (b"start\0" if sparse else b"starte")
