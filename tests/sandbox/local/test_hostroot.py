from __future__ import annotations

import os
import secrets
import stat
import subprocess
import sys
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import HOST_ROOT

import benchflow
from benchflow.locks import briefly
from benchflow.sandbox.base import HostRoot, Network
from benchflow.sandbox.local import hostroot
from benchflow.sandbox.local.engine import BoxSpec, Engine
from benchflow.sandbox.local.hostroot import BUNDLE, HostView, limits, trust_environment
from benchflow.sandbox.local.image import release_images, resolve_image

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from benchflow.sandbox.local.box import Box


@pytest.fixture
def small_root(tmp_path: Path) -> Path:
    """A host's root in small."""
    root = tmp_path / "host"
    files = {
        "usr/bin/tool": 0o755,
        "usr/share/open": 0o644,
        "usr/share/closed": 0o600,
        "usr/share/locked/file": 0o644,
        "etc/profile": 0o644,
        "etc/closed": 0o600,
        "etc/shadow": 0o640,
        "var/lib/dpkg/status": 0o644,
        "var/lib/dpkg/lock": 0o640,
        "var/lib/secret/file": 0o644,
        "root/file": 0o644,
        "data/file": 0o644,
    }
    for path, mode in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
        (root / path).chmod(mode)
    (root / "usr/share/locked").chmod(0o700)
    (root / "bin").symlink_to("usr/bin")
    return root


VISIBLE = ["usr/bin/tool", "bin/tool", "usr/share/open", "etc/profile", "var/lib/dpkg/status"]
INVISIBLE = [
    *("usr/share/closed", "usr/share/locked/file", "etc/closed", "var/lib/dpkg/lock", "var/lib/secret/file"),
    *("root/file", "data/file"),
]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make an overlay's marks")


@pytest.fixture(params=["redirected", "masked"])
def style(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to lay a view out; a root that is an overlay itself is the one that forces the second."""
    monkeypatch.setattr(hostroot, "_is_overlay", lambda _: request.param == "masked")
    return str(request.param)


@asynccontextmanager
async def seen(view: HostView, folder: Path) -> AsyncIterator[Box]:
    """A box on a view."""
    view.make(folder)
    engine = Engine()
    try:
        started = await engine.start_box(
            BoxSpec(name="look", layers=view.layers(folder), network=Network("no-network"))
        )
        try:
            yield started
        finally:
            await started.stop()
    finally:
        await engine.close()


@needs_root
@pytest.mark.needs("local")
@pytest.mark.usefixtures("style")
async def test_a_box_sees_what_is_allowed_and_nothing_else(small_root: Path, tmp_path: Path) -> None:
    (tmp_path / "layer" / "fs").mkdir(parents=True)
    async with seen(HostView(small_root), tmp_path / "layer" / "fs") as box:
        for path in VISIBLE:
            assert await box.read(f"/{path}"), path
        for path in INVISIBLE:
            with pytest.raises(FileNotFoundError):
                await box.read(f"/{path}")
        assert b"shadow" not in await box.read("/etc/shadow")


@needs_root
@pytest.mark.needs("local")
async def test_what_appears_at_the_top_later_is_not_seen_either(small_root: Path, tmp_path: Path) -> None:
    (tmp_path / "layer" / "fs").mkdir(parents=True)
    async with seen(HostView(small_root), tmp_path / "layer" / "fs") as box:
        (small_root / "new").write_text("x")
        (small_root / "etc" / "new").write_text("x")
        (small_root / "var" / "lib" / "new").write_text("x")
        for path in ("new", "etc/new", "var/lib/new"):
            with pytest.raises(FileNotFoundError):
                await box.read(f"/{path}")


@needs_root
def test_the_layout_keeps_the_hosts_modes(small_root: Path, tmp_path: Path, style: str) -> None:
    (small_root / "usr").chmod(0o775)
    (small_root / "usr" / "share").chmod(0o711 | 0o004)
    (tmp_path / "layer" / "fs").mkdir(parents=True)
    view = HostView(small_root)
    view.make(tmp_path / "layer" / "fs")
    top = tmp_path / "layer" / "fs" / ("R" if style == "redirected" else "")
    for name in ("usr", "usr/share"):
        assert stat.S_IMODE((top / name).stat().st_mode) == stat.S_IMODE((small_root / name).stat().st_mode)
    hidden = os.lstat(top / "usr" / "share" / "closed")
    assert stat.S_ISCHR(hidden.st_mode)
    assert hidden.st_rdev == 0


def test_without_root_what_the_user_could_read_is_covered(small_root: Path, tmp_path: Path) -> None:
    layer = tmp_path / "layer"
    (layer / "fs").mkdir(parents=True)
    view = HostView(small_root, privileged=False)
    view.make(layer / "fs")
    assert view.layers(layer / "fs") == (layer / "fs",)
    mounts = {mount.target: mount.source for mount in view.mounts(layer / "fs")}
    assert mounts.pop("/usr") == small_root / "usr"
    readable = {f"/{p}" for p in ("usr/share/closed", "usr/share/locked") if os.access(small_root / p, os.R_OK)}
    assert set(mounts) == readable
    assert {source.name for source in mounts.values()} <= {"empty", "nothing"}
    assert (layer / "fs" / "var/lib/dpkg/status").read_text() == "var/lib/dpkg/status"
    assert not (layer / "fs" / "var/lib/dpkg/lock").exists()
    assert sorted(path.name for path in (layer / "fs" / "usr").iterdir()) == []


def test_a_view_is_current_until_entries_come_or_go(small_root: Path) -> None:
    view = HostView(small_root)
    before = view.current
    (small_root / "etc" / "more").write_text("x")
    assert (before, view.current) == (True, False)
    fresh = HostView(small_root)
    assert fresh.key != view.key
    assert HostView(small_root).key == fresh.key


def test_the_key_follows_modes(small_root: Path) -> None:
    before = HostView(small_root).key
    (small_root / "usr" / "share" / "open").chmod(0o600)
    assert HostView(small_root).key != before


def test_trust_is_passed_on_only_where_the_host_adds_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tmp_path / "bundle.crt"
    bundle.write_text("certificates")
    monkeypatch.setattr(hostroot, "BUNDLE", bundle)
    monkeypatch.setattr(hostroot, "LOCAL_CERTIFICATES", tmp_path / "local")
    assert trust_environment({"SSL_CERT_FILE": str(bundle)}) == {}
    assert set(trust_environment({"SSL_CERT_FILE": "/elsewhere"}).values()) == {str(bundle)}
    (tmp_path / "local" / "company").mkdir(parents=True)
    (tmp_path / "local" / "company" / "ca.crt").write_text("x")
    assert trust_environment({})["NODE_EXTRA_CA_CERTS"] == str(bundle)
    bundle.unlink()
    assert trust_environment({}) == {}
    assert BUNDLE.is_absolute()


def test_without_root_the_limits_are_named() -> None:
    assert limits(privileged=True) == ()
    assert "/usr" in limits(privileged=False)[0]


# -- this machine's own root ---------------------------------------------------------------------------------


@pytest.fixture
def planted() -> Iterator[list[str]]:
    """Secrets of this machine: files with a known content in places that sandboxes must not see."""
    token = f"benchflow-{secrets.token_hex(8)}"
    homes = [
        path for path in (Path("/root"), Path("/home"), Path("/opt"), Path("/srv"), Path("/var/lib")) if path.is_dir()
    ]
    places = [(path / token, 0o644) for path in (*homes, Path("/mnt"), Path("/tmp"), Path("/var/tmp"), Path("/run"))]
    places += [(Path("/etc") / token, 0o600), (Path("/etc") / f"{token}.key", 0o644), (Path(f"/{token}"), 0o644)]
    places += [(Path("/usr/share") / token, 0o640)]
    with briefly(HOST_ROOT, shared=False), ExitStack() as stack:
        for path, mode in places:
            # Private from its first moment on: whoever surveys the root now does not take it for a file to copy.
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "w") as file:
                stack.callback(path.unlink)
                file.write(token)
        yield [str(path) for path, _ in places]


@needs_root
@pytest.mark.needs("local")
async def test_nothing_planted_on_this_machine_is_seen(planted: list[str]) -> None:
    engine = Engine()
    try:
        image = await resolve_image(HostRoot(), engine=engine)
        box = await engine.start_box(BoxSpec(name="look", layers=image.layers, network=Network("no-network")))
        try:
            for user in ("root", "nobody"):
                seen = await box.exec(["ls", "-d", *planted], user=user, env=image.env)
                assert seen.stdout == b"", user
                found = await box.exec("find / -xdev -name 'benchflow-*' 2>/dev/null", user=user, env=image.env)
                assert found.stdout == b"", user
            homes = await box.exec("ls -A /root /home /opt /srv /mnt /media /tmp /var/tmp", env=image.env)
            assert set(homes.text.split()) == {
                f"/{n}:" for n in ("root", "home", "opt", "srv", "mnt", "media", "tmp", "var/tmp")
            }
            top = await box.exec("ls /", env=image.env)
            allowed = (
                "bin boot dev etc home lib lib32 lib64 libx32 media mnt opt proc root run sbin srv sys tmp usr var"
            )
            assert set(top.text.split()) <= set(allowed.split())
            accounts = await box.exec(
                "cut -d: -f2 /etc/shadow | sort -u; awk -F: '$3 >= 1000 && $3 != 65534' /etc/passwd", env=image.env
            )
            assert accounts.text == "*\n"
        finally:
            await box.stop()
    finally:
        await engine.close()
        release_images(engine)


AS_USER = """
import asyncio, pathlib, secrets
from benchflow.sandbox.base import BuildContext, HostRoot, Network
from benchflow.sandbox.local.engine import BoxSpec, Engine
from benchflow.sandbox.local.image import release_images, resolve_image

async def main():
    engine = Engine()
    token = f"benchflow-{secrets.token_hex(8)}"
    context = pathlib.Path.home() / token
    context.mkdir()
    lines = ["FROM not-there:1", "WORKDIR /app", "COPY Dockerfile .", "RUN wc -l Dockerfile > out", ""]
    (context / "Dockerfile").write_text("\\n".join(lines))
    image = await resolve_image(BuildContext(context), engine=engine)
    box = await engine.start_box(BoxSpec("x", image.layers, mounts=image.mounts, network=Network("no-network")))
    look = "cat out; find / -xdev -name 'benchflow-*' 2>/dev/null; ls -A /root /home /tmp | grep -v :"
    result = await box.exec(look + "; touch /usr/x /app/y", env=image.env, cwd=image.workdir)
    print(result.text.split(), result.stderr.decode().strip(), *image.notes, sep="\\n")
    await box.stop()
    await engine.close()
    release_images(engine)

asyncio.run(main())
"""


@needs_root
@pytest.mark.needs("local")
@pytest.mark.parametrize("ids", ["single", "ranges"])
def test_an_ordinary_user_builds_on_the_hosts_root_and_sees_nothing_private(ids: str) -> None:
    package = Path(benchflow.__file__).parents[1]
    env = {**os.environ, "AS_USER_PATHS": str(package), "PYTHONPATH": str(package), "DOCKER_HOST": "unix:///none.sock"}
    command = [sys.executable, str(Path(__file__).with_name("as_user.py")), ids, sys.executable, "-c", AS_USER]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    seen, complaint, *notes = done.stdout.splitlines()
    assert seen == "['4', 'Dockerfile']"
    assert "Read-only file system" in complaint
    assert "the host's root stands in" in notes[0]
    assert notes[1] == limits(privileged=False)[0]


@needs_root
@pytest.mark.needs("local")
async def test_certificates_and_users_work_on_this_machines_root() -> None:
    engine = Engine()
    try:
        image = await resolve_image(HostRoot(), engine=engine)
        box = await engine.start_box(BoxSpec(name="look", layers=image.layers, network=Network("no-network")))
        try:
            made = await box.exec("useradd -m agent && id -un agent && ls -d /home/agent", env=image.env)
            assert made.text == "agent\n/home/agent\n", made.stderr
            if BUNDLE.is_file():
                bundle = await box.exec(f"grep -c BEGIN {BUNDLE}", env=image.env, user="agent")
                assert int(bundle.text) == BUNDLE.read_text().count("BEGIN CERTIFICATE")
        finally:
            await box.stop()
    finally:
        await engine.close()
        release_images(engine)
