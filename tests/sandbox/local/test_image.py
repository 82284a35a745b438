from __future__ import annotations

import asyncio
import io
import json
import os
import tarfile
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import ConfigError, SandboxBuildError
from benchflow.sandbox.base import BuildContext, HostRoot, ImageRef, Network, RootFolder
from benchflow.sandbox.local.bases import full_name
from benchflow.sandbox.local.engine import BoxSpec, Engine
from benchflow.sandbox.local.image import Image, images_of, release_images, resolve_image

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from benchflow.sandbox.local.box import Box

pytestmark = [pytest.mark.needs("local"), pytest.mark.usefixtures("host_root_stays")]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, no container engine, and the host's root for whatever cannot be had."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BENCHFLOW_LOCAL_DIR", raising=False)
    monkeypatch.delenv("BENCHFLOW_LOCAL_BASE", raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    return tmp_path / "cache" / "benchflow" / "local"


@pytest.fixture
async def engine(cache: Path) -> AsyncIterator[Engine]:
    made = Engine()
    yield made
    await made.close()
    release_images(made)


@pytest.fixture
def context(tmp_path: Path) -> Path:
    (tmp_path / "context").mkdir()
    return tmp_path / "context"


class Built:
    """Builds Dockerfiles in one context and looks at the result."""

    def __init__(self, engine: Engine, context: Path) -> None:
        self.engine = engine
        self.context = context
        self.log: list[str] = []

    async def build(self, text: str, timeout: float = 60) -> Image:
        (self.context / "Dockerfile").write_text(f"FROM not-there:1\n{text}")
        self.log.clear()
        return await resolve_image(BuildContext(self.context), engine=self.engine, log=self.log.append, timeout=timeout)

    @property
    def steps(self) -> list[str]:
        """The steps that the last build carried out."""
        return [line.partition("] ")[2] for line in self.log if line.startswith("[")]

    async def see(self, text: str, command: str) -> str:
        """What a command prints in a sandbox made from a Dockerfile."""
        image = await self.build(text)
        async with box(self.engine, image) as sandbox:
            result = await sandbox.exec(command, env=image.env, cwd=image.workdir, user=image.user)
            assert result.ok, result.stderr
            return result.text


@pytest.fixture
def built(engine: Engine, context: Path) -> Built:
    return Built(engine, context)


@asynccontextmanager
async def box(engine: Engine, image: Image) -> AsyncIterator[Box]:
    started = await engine.start_box(BoxSpec(name="look", layers=image.layers, network=Network("no-network")))
    try:
        yield started
    finally:
        await started.stop()


def left(cache: Path) -> list[str]:
    """What an unfinished build would leave."""
    return [path.name for folder in ("tmp", "locks", "boxes", "uppers") for path in (cache / folder).glob("*")]


# -- Dockerfiles ---------------------------------------------------------------------------------------------


async def test_a_build_shows_in_the_sandbox(built: Built, context: Path) -> None:
    (context / "hello.txt").write_text("hello\n")
    text = """
    ARG GREETING=hi
    ENV NAME=world WHERE=/app
    RUN mkdir /data && echo "$GREETING $NAME" > /data/greeting
    WORKDIR $WHERE
    COPY hello.txt .
    RUN ["sh", "-c", "pwd > /data/place"]
    SHELL ["/bin/sh", "-e", "-c"]
    RUN false || true; echo $- > /data/shell
    USER nobody
    CMD ["ignored"]
    """
    image = await built.build(text)
    assert (image.workdir, image.user, image.env["NAME"]) == ("/app", "nobody", "world")
    assert "GREETING" not in image.env
    assert image.notes[0].startswith("FROM not-there:1 could not be had (no container engine answers); the host's root")
    assert image.notes[0] in built.log
    out = await built.see(text, "cat /data/greeting hello.txt /data/place; grep -c e /data/shell; id -un; pwd")
    assert out == "hi world\nhello\n/app\n1\nnobody\n/app\n"


async def test_a_layer_is_made_once_and_a_change_keeps_what_is_above_it(built: Built, context: Path) -> None:
    (context / "file").write_text("1")
    text = "RUN echo a > /a\nCOPY file /file\nRUN cat /file > /b\n"
    first = await built.build(text)
    assert len(built.steps) == 3
    assert await built.build(f"# a comment\n{text}LABEL x=y") == first
    assert built.steps == []
    (context / "unrelated").write_text("x")
    assert await built.build(text) == first
    (context / "file").write_text("2")
    second = await built.build(text)
    assert built.steps == ["COPY file /file", "RUN cat /file > /b"]
    assert second.layers[2:] == first.layers[2:]
    assert await built.see(text, "cat /b") == "2"


async def test_another_process_finds_the_layers(built: Built, context: Path) -> None:
    image = await built.build("RUN echo x > /x")
    other = Engine()
    try:
        log: list[str] = []
        assert await resolve_image(BuildContext(context), engine=other, log=log.append) == image
        assert [line for line in log if line.startswith("[")] == []
    finally:
        await other.close()
        release_images(other)


async def test_many_builds_at_once_run_each_step_once(built: Built, context: Path) -> None:
    (context / "Dockerfile").write_text("FROM not-there:1\nRUN echo one; sleep 0.2\nRUN echo two\n")
    log: list[str] = []
    images = await asyncio.gather(
        *(resolve_image(BuildContext(context), engine=built.engine, log=log.append) for _ in range(20))
    )
    assert len(set(map(str, images))) == 1
    assert [line for line in log if line in {"one", "two"}] == ["one", "two"]


async def test_what_a_step_removes_is_gone(built: Built) -> None:
    text = "RUN mkdir /d && touch /d/a /d/b /f\nRUN rm -r /f /d/a && rm -r /usr/share/doc && mkdir /usr/share/doc\n"
    assert await built.see(text, "ls / /d /usr/share/doc | tr '\\n' ' '; ls /f 2>&1 || true") != ""
    assert await built.see(text, "ls /d /usr/share/doc") == "/d:\nb\n\n/usr/share/doc:\n"


async def test_the_output_of_a_step_goes_to_the_log_as_it_comes(built: Built) -> None:
    await built.build("RUN echo out; echo err >&2; printf 'half\\rwhole\\nlast'")
    assert built.log[1] == "[1/1] RUN echo out; echo err >&2; printf 'half\\rwhole\\nlast'"
    assert set(built.log[2:]) == {"out", "err", "whole", "last"}


async def test_a_failing_step_is_shown_with_its_output(built: Built, cache: Path) -> None:
    with pytest.raises(SandboxBuildError) as caught:
        await built.build("RUN true\nRUN echo before; echo why >&2; exit 7")
    error = caught.value
    assert f"{built.context}/Dockerfile:3: the command ended with exit code 7" in str(error)
    assert error.step == "RUN echo before; echo why >&2; exit 7"
    assert set(error.output.splitlines()) == {"before", "why"}
    assert left(cache) == []
    await built.build("RUN true\nRUN echo fixed")
    assert built.steps == ["RUN echo fixed"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("RUN nonexistent-program", "exit code 127"),
        ("USER nobody-knows\nRUN true", "exit code 126"),
        ('RUN ["/etc/hostname"]', "exit code 126"),
        ("COPY --chown=nobody-knows Dockerfile /x", "nobody-knows"),
    ],
)
async def test_how_steps_fail(built: Built, cache: Path, line: str, message: str) -> None:
    with pytest.raises(SandboxBuildError, match=message) as caught:
        await built.build(line)
    assert caught.value.step == line.rpartition("\n")[2]
    assert left(cache) == []


async def test_the_time_of_a_build_is_limited(built: Built, cache: Path) -> None:
    await built.build("RUN true")
    with pytest.raises(SandboxBuildError, match="not ready within 5 s") as caught:
        await built.build("RUN echo begun; sleep 1000", timeout=5)
    assert caught.value.step == "RUN echo begun; sleep 1000"
    assert "begun" in caught.value.output
    assert left(cache) == []


async def test_a_cancelled_build_leaves_nothing(built: Built, cache: Path) -> None:
    begun = asyncio.Event()
    (built.context / "Dockerfile").write_text("FROM not-there:1\nRUN echo begun; sleep 1000\n")

    def log(line: str) -> None:
        if line == "begun":
            begun.set()

    task = asyncio.create_task(resolve_image(BuildContext(built.context), engine=built.engine, log=log))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left(cache) == []


async def test_a_background_process_does_not_hold_a_build_up(built: Built) -> None:
    await built.build("RUN sleep 1000 & echo done", timeout=30)
    assert "done" in built.log


async def test_commands_of_a_build_have_a_network_and_nothing_of_the_hosts_environment(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "visible")
    out = await built.see("RUN env > /env; cat /proc/net/route > /route; ls /proc/net > /net", "cat /env /route")
    assert "visible" not in out
    assert "Destination" in out


# -- COPY ----------------------------------------------------------------------------------------------------


def tree(context: Path) -> None:
    (context / "dir" / "sub").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "dir/x", "dir/sub/y", "run.sh"):
        (context / name).write_text(f"{name}\n")
    (context / "run.sh").chmod(0o755)
    (context / "dir" / "link").symlink_to("/etc/hostname")
    (context / "tofile").symlink_to("dir/x")
    (context / ".dockerignore").write_text("b.txt\nDockerfile\n.dockerignore\n")


@pytest.mark.parametrize(
    ("lines", "command", "expected"),
    [
        ("COPY a.txt /new", "cat /new", "a.txt\n"),
        ("COPY a.txt /deep/er/", "cat /deep/er/a.txt; stat -c '%a %u:%g' /deep/er", "a.txt\n755 0:0\n"),
        ("COPY a.txt /opt", "cat /opt/a.txt", "a.txt\n"),
        ("COPY dir /opt", "ls /opt", "link\nsub\nx\n"),
        ("COPY dir /fresh", "ls /fresh; readlink /fresh/link", "link\nsub\nx\n/etc/hostname\n"),
        ("COPY a.txt dir /mix/", "ls /mix", "a.txt\nlink\nsub\nx\n"),
        ("COPY *.txt /globbed/", "ls /globbed", "a.txt\n"),
        ("COPY . /all", "ls -A /all", "a.txt\ndir\nrun.sh\ntofile\n"),
        ("COPY tofile /f", "cat /f; test -L /f || echo file", "dir/x\nfile\n"),
        ("COPY run.sh /r", "stat -c %a /r", "755\n"),
        ("COPY --chmod=640 run.sh /r", "stat -c %a /r", "640\n"),
        ("COPY --chmod=0700 dir /r", "stat -c %a /r /r/x /r/sub", "755\n700\n700\n"),
        ("COPY --chown=nobody run.sh /r", "stat -c %U:%G /r", "nobody:nogroup\n"),
        ("COPY --chown=12:34 dir /r", "stat -c %u:%g /r /r/x /r/link", "12:34\n12:34\n12:34\n"),
        ("COPY --chown=12 run.sh /r", "stat -c %u:%g /r", "12:12\n"),
        ("USER nobody\nCOPY a.txt /r", "stat -c %U /r", "root\n"),
        ("RUN ln -s /opt /l\nCOPY a.txt /l/", "cat /opt/a.txt; test -L /l && echo link", "a.txt\nlink\n"),
        ("RUN ln -s /opt /l\nCOPY a.txt /l", "cat /opt/a.txt", "a.txt\n"),
        ("RUN ln -s /opt /l\nCOPY dir /l", "ls /opt", "link\nsub\nx\n"),
        ("RUN ln -s /opt/real /l\nCOPY a.txt /l", "cat /opt/real; readlink /l", "a.txt\n/opt/real\n"),
        ("RUN echo old > /f\nCOPY a.txt /f", "cat /f", "a.txt\n"),
        ("RUN mkdir -m 700 /d\nCOPY dir /d", "stat -c %a /d; ls /d", "700\nlink\nsub\nx\n"),
        ("WORKDIR /w\nCOPY a.txt sub/b", "cat /w/sub/b", "a.txt\n"),
        ('COPY ["a.txt", "/with blank"]', "cat '/with blank'", "a.txt\n"),
        ("ADD a.txt /added", "cat /added", "a.txt\n"),
        ("RUN useradd u\nUSER u\nWORKDIR /home/u/w", "stat -c %U /home/u/w", "u\n"),
        ("RUN mkdir /w\nUSER nobody\nWORKDIR /w", "stat -c %U /w", "root\n"),
        ("RUN ln -s /opt /l\nWORKDIR /l/w", "ls -d /opt/w", "/opt/w\n"),
    ],
)
async def test_copy(built: Built, context: Path, lines: str, command: str, expected: str) -> None:
    tree(context)
    assert await built.see(lines, command) == expected


async def test_a_link_out_of_the_context_copies_nothing_of_the_host(built: Built, context: Path) -> None:
    (context / "outside").symlink_to("/etc/passwd")
    with pytest.raises(SandboxBuildError, match="not in the build context"):
        await built.build("COPY outside /x")
    assert (await built.see("COPY . /all", "readlink /all/outside")) == "/etc/passwd\n"


# -- other sources -------------------------------------------------------------------------------------------


async def test_from_scratch(engine: Engine, context: Path) -> None:
    (context / "file").write_text("content")
    (context / "Dockerfile").write_text("FROM scratch\nWORKDIR /w\nCOPY --chown=5:6 file .\n")
    image = await resolve_image(BuildContext(context), engine=engine)
    assert image.notes == ()
    async with box(engine, image) as sandbox:
        assert await sandbox.read("/w/file") == b"content"
        assert (await sandbox.exec(["sh"])).exit_code == 127


async def test_the_hosts_root_and_a_name_that_cannot_be_had(engine: Engine) -> None:
    host = await resolve_image(HostRoot(), engine=engine)
    named = await resolve_image(ImageRef("not-there:1"), engine=engine)
    assert named.layers == host.layers
    assert host.notes == ()
    assert "not-there:1" in named.notes[0]
    async with box(engine, host) as sandbox:
        assert (await sandbox.exec("cat /etc/os-release", env=host.env)).ok


def rootfs(path: Path) -> Path:
    """A tar with two files and odd owners."""
    with tarfile.open(path, "w:gz") as tar:
        for name, uid, mode in (("etc/who", 12, 0o640), ("bin/tool", 0, 0o4755)):
            entry = tarfile.TarInfo(name)
            entry.uid = entry.gid = uid
            entry.mode = mode
            entry.size = 4
            tar.addfile(entry, io.BytesIO(b"text"))
    return path


async def test_a_folder_and_a_tar(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "root" / "etc").mkdir(parents=True)
    (tmp_path / "root" / "etc" / "who").write_text("folder")
    folder = await resolve_image(RootFolder(tmp_path / "root"), engine=engine)
    assert folder.layers == (tmp_path / "root",)
    archive = await resolve_image(RootFolder(rootfs(tmp_path / "root.tgz")), engine=engine)
    async with box(engine, archive) as sandbox:
        assert await sandbox.read("/etc/who") == b"text"
    assert os.lstat(archive.layers[0] / "bin" / "tool").st_mode & 0o7777 == 0o4755
    if os.geteuid() == 0:
        assert os.lstat(archive.layers[0] / "etc" / "who").st_uid == 12
    with pytest.raises(SandboxBuildError, match="nowhere"):
        await resolve_image(RootFolder(tmp_path / "nowhere"), engine=engine)


async def test_a_chosen_base_stands_in(
    engine: Engine, context: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (context / "Dockerfile").write_text("FROM not-there:1\nCOPY Dockerfile /\n")
    monkeypatch.setenv("BENCHFLOW_LOCAL_BASE", str(rootfs(tmp_path / "base.tar")))
    image = await resolve_image(BuildContext(context), engine=engine)
    assert image.notes == (
        f"FROM not-there:1 could not be had (no container engine answers); {tmp_path}/base.tar stands in",
    )
    async with box(engine, image) as sandbox:
        assert await sandbox.read("/etc/who") == b"text"
    with pytest.raises(ConfigError, match="BENCHFLOW_LOCAL_BASE"):
        await resolve_image(BuildContext(context), engine=engine, base=str(tmp_path / "none"))


async def test_an_image_archive_brings_its_configuration(engine: Engine, tmp_path: Path) -> None:
    rootfs(tmp_path / "layer.tar")
    config = {"config": {"Env": ["A=b"], "WorkingDir": "/w", "User": "12"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "manifest.json").write_text(json.dumps([{"Config": "config.json", "Layers": ["layer.tar"]}]))
    with tarfile.open(tmp_path / "image.tar", "w") as tar:
        for name in ("manifest.json", "config.json", "layer.tar"):
            tar.add(tmp_path / name, name)
    image = await resolve_image(RootFolder(tmp_path / "image.tar"), engine=engine)
    assert (image.env["A"], image.workdir, image.user) == ("b", "/w", "12")
    async with box(engine, image) as sandbox:
        assert await sandbox.read("/bin/tool") == b"text"


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        ("FROM a AS b\nRUN x\nFROM c\nCOPY --from=b /x /y", "Dockerfile:3: "),
        ("FROM a\nRUN --mount=type=cache,target=/c x", "Dockerfile:2: "),
        ("FROM a\nADD https://example.org/x /x", "Dockerfile:2: "),
    ],
)
async def test_what_is_not_simple_is_refused_without_a_builder(
    engine: Engine, context: Path, monkeypatch: pytest.MonkeyPatch, lines: str, where: str
) -> None:
    (context / "Dockerfile").write_text(lines)
    await engine.flavor()
    monkeypatch.setenv("PATH", str(context))
    with pytest.raises(SandboxBuildError) as caught:
        await resolve_image(BuildContext(context), engine=engine)
    assert where in str(caught.value)
    assert "install a builder" in str(caught.value)


async def test_pruning_spares_what_is_in_use(built: Built, cache: Path) -> None:
    await built.build("RUN echo x > /x")
    images = await images_of(built.engine)
    assert await images.disk_use() > 0
    assert await images.prune() == []
    images.close()
    assert len(await images.prune(dry_run=True)) == 2
    assert any("RUN echo x" in line for line in await images.prune())
    assert list((cache / "layers").iterdir()) == []
    assert left(cache) == []
    assert await images.disk_use() == 0
    assert await built.see("RUN echo x > /x", "cat /x") == "x\n"


async def test_a_cache_that_cannot_be_used_is_named(engine: Engine, context: Path, cache: Path) -> None:
    (context / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    await engine.remove(cache / "layers")
    (cache / "layers").write_text("in the way")
    with pytest.raises(SandboxBuildError, match=r"the image cache .* cannot be used") as caught:
        await resolve_image(BuildContext(context), engine=engine)
    assert "BENCHFLOW_LOCAL_DIR" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("python", "python:latest"),
        ("docker.io/library/python:3", "python:3"),
        ("localhost:5000/x", "localhost:5000/x:latest"),
        ("x@sha256:00", "x@sha256:00"),
    ],
)
def test_one_spelling_for_a_name(name: str, full: str) -> None:
    assert full_name(name) == full
