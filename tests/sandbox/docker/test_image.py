"""Images: built once however many want them, from what the build may see; a failure says which step and why."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import aiodocker
import pytest

from benchflow.errors import SandboxBuildError
from benchflow.sandbox.base import BuildContext, ImageRef, Network, SandboxSpec
from benchflow.sandbox.docker import labels
from benchflow.sandbox.docker.build import BUILDKIT_HINT
from benchflow.sandbox.docker.image import TASK_IMAGES
from benchflow.sandbox.dockerignore import context_digest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from benchflow.sandbox.docker.backend import DockerBackend

BASE = "debian:bookworm-slim"
OFFLINE = Network("no-network")


@pytest.fixture
async def context(tmp_path: Path, docker: aiodocker.Docker) -> AsyncIterator[Path]:
    """A context that nobody has built before; its image goes with it."""
    folder = tmp_path / "context"
    folder.mkdir()
    write(folder, "RUN true")
    yield folder
    with suppress(aiodocker.DockerError):
        await docker.images.delete(tag(folder), force=True)


def write(folder: Path, *lines: str) -> None:
    head = (f"FROM {BASE}", f"LABEL unique={secrets.token_hex(8)}")
    (folder / "Dockerfile").write_text("\n".join((*head, *lines)) + "\n")


def tag(folder: Path, dockerfile: str = "Dockerfile") -> str:
    return f"{TASK_IMAGES}:{context_digest(folder, dockerfile)[:40]}"


async def test_the_image_settings_are_used_and_its_entry_point_is_not(backend: DockerBackend, context: Path) -> None:
    write(
        context,
        "RUN useradd --uid 4321 worker && mkdir /shop && chown worker /shop",
        "ENV COLOUR=blue SHAPE=round",
        "WORKDIR /shop",
        "USER worker",
        'ENTRYPOINT ["sh", "-c", "touch /shop/entered; exit 3"]',
        "HEALTHCHECK CMD touch /shop/checked",
    )
    spec = SandboxSpec(BuildContext(context), env={"SHAPE": "square"}, network=OFFLINE)
    async with backend.create(spec) as box:
        assert (box.workdir, box.env["COLOUR"], box.env["SHAPE"]) == ("/shop", "blue", "square")
        assert (await box.exec("id -un; pwd; echo $COLOUR $SHAPE $HOME; ls")).text == (
            "worker\n/shop\nblue square /home/worker\n"
        )
        assert (await box.exec("id -u", user=0)).text == "0\n"
        async with await box.fork() as fork:
            assert (await fork.exec("id -un; pwd; echo $COLOUR $SHAPE")).text == "worker\n/shop\nblue square\n"


async def test_many_wait_for_one_build(backend: DockerBackend, context: Path, docker: aiodocker.Docker) -> None:
    write(context, "RUN echo building; sleep 1; date +%N > /stamp")
    logs: list[list[str]] = [[] for _ in range(8)]

    async def stamp(lines: list[str]) -> str:
        async with backend.create(SandboxSpec(BuildContext(context), network=OFFLINE, log=lines.append)) as box:
            return (await box.read("/stamp")).decode()

    assert len(set(await asyncio.gather(*map(stamp, logs)))) == 1
    assert all("building" in lines for lines in logs)
    found = await docker.images.inspect(tag(context))
    assert found["Config"]["Labels"][labels.IMAGE] == "task"
    again: list[str] = []
    await backend.prepare(BuildContext(context), log=again.append)
    assert again == []


async def test_processes_wait_for_each_others_build(context: Path, engine: str) -> None:
    write(context, "RUN sleep 1; date +%N > /stamp")
    program = (
        "import asyncio, sys; from pathlib import Path\n"
        "from benchflow.sandbox.base import *; from benchflow.sandbox.docker.backend import DockerBackend\n"
        "async def main():\n"
        "    backend = DockerBackend()\n"
        "    spec = SandboxSpec(BuildContext(Path(sys.argv[1])), network=Network('no-network'), log=lines.append)\n"
        "    async with backend.create(spec) as box: print((await box.read('/stamp')).decode().strip(), len(lines))\n"
        "    await backend.close()\n"
        "lines = []; asyncio.run(main())\n"
    )
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, str(context), stdout=asyncio.subprocess.PIPE
        )
        for _ in range(3)
    ]
    answers = [(await process.communicate())[0].split() for process in processes]
    assert len({stamp for stamp, _ in answers}) == 1
    assert sum(int(lines) > 2 for _, lines in answers) == 1


async def test_the_build_sees_what_is_not_ignored(backend: DockerBackend, context: Path) -> None:
    (context / "kept").mkdir()
    (context / "kept" / "tool").write_bytes(b"#!/bin/sh\necho ran\n")
    (context / "kept" / "tool").chmod(0o755)
    (context / "kept" / "link").symlink_to("tool")
    (context / "secret").write_bytes(b"x")
    (context / ".dockerignore").write_text("secret\nDockerfile\n.dockerignore\n")
    write(context, "COPY . /sent")
    async with backend.create(SandboxSpec(BuildContext(context), network=OFFLINE)) as box:
        assert (await box.exec("cd /sent && find . | sort; kept/link; stat -c %a kept/tool")).text == (
            ".\n./kept\n./kept/link\n./kept/tool\nran\n755\n"
        )


async def test_another_dockerfile(backend: DockerBackend, context: Path, docker: aiodocker.Docker) -> None:
    (context / "sub").mkdir()
    (context / "sub" / "Other").write_text(f"FROM {BASE}\nRUN echo other-{secrets.token_hex(4)} > /which\n")
    source = BuildContext(context, "sub/Other")
    async with backend.create(SandboxSpec(source, network=OFFLINE)) as box:
        assert (await box.read("/which")).startswith(b"other-")
    await docker.images.delete(tag(context, source.dockerfile), force=True)


async def test_a_failure_names_the_step_and_shows_the_output(backend: DockerBackend, context: Path) -> None:
    write(context, "RUN echo fine", "RUN echo the-reason >&2; exit 9")
    lines: list[str] = []
    with pytest.raises(SandboxBuildError) as caught:
        await backend.prepare(BuildContext(context), log=lines.append)
    assert "RUN echo the-reason" in caught.value.step
    assert "the-reason" in caught.value.output
    assert str(context / "Dockerfile") in str(caught.value)
    assert any("the-reason" in line for line in lines)
    sandbox = backend.create(SandboxSpec(BuildContext(context)))
    with pytest.raises(SandboxBuildError):
        await sandbox.start()
    assert [info for info in await backend.list() if info.owner_pid == os.getpid()] == []


async def test_a_build_that_takes_too_long(backend: DockerBackend, context: Path, docker: aiodocker.Docker) -> None:
    # Not for ever: some engines go on with what nobody waits for any more.
    command = f"sleep 120.{secrets.randbelow(10**9)}"
    write(context, f"RUN {command}")
    for seconds in (2, 15, 60):  # on a busy machine the steps before may take long
        with pytest.raises(SandboxBuildError, match=f"within {seconds} s") as caught:
            await backend.prepare(BuildContext(context), timeout=seconds)
        if command in caught.value.step:
            break
    assert command in caught.value.step
    assert "build_timeout_sec" in (caught.value.hint or "")

    async def nothing_builds() -> bool:
        return not [each for each in await docker.containers.list() if command in each["Command"]]

    async with asyncio.timeout(60):
        while not await nothing_builds():  # noqa: ASYNC110  the engine does not tell
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("lines", [["FROM"], ["NONSENSE x"], ["COPY missing /x"]])
async def test_a_file_that_makes_no_sense(backend: DockerBackend, context: Path, lines: list[str]) -> None:
    write(context, *lines)
    with pytest.raises(SandboxBuildError, match="does not build"):
        await backend.prepare(BuildContext(context))


async def test_what_needs_buildkit_says_so(backend: DockerBackend, context: Path, engine: str) -> None:
    write(context, "RUN --mount=type=secret,id=none,required=true cat /run/secrets/none")
    with pytest.raises(SandboxBuildError) as caught:
        await backend.prepare(BuildContext(context))
    assert caught.value.hint == BUILDKIT_HINT


async def test_a_missing_context(backend: DockerBackend, tmp_path: Path) -> None:
    with pytest.raises(SandboxBuildError):
        await backend.prepare(BuildContext(tmp_path / "missing"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(SandboxBuildError, match="Dockerfile"):
        await backend.prepare(BuildContext(tmp_path / "empty"))


async def test_an_image_that_cannot_be_pulled(backend: DockerBackend) -> None:
    with pytest.raises(SandboxBuildError, match=r"benchflow\.invalid/no-such.*cannot be pulled") as caught:
        await backend.prepare(ImageRef("benchflow.invalid/no-such:image"))
    assert "docker pull" in (caught.value.hint or "")


async def test_prune_removes_what_nobody_uses(backend: DockerBackend, context: Path, docker: aiodocker.Docker) -> None:
    source = BuildContext(context)
    await backend.prepare(source)
    name = tag(context)
    assert (await backend.disk_use())["task images"] > 0
    assert not any(name in removed for removed in await backend.prune(older_than=1000, dry_run=True))
    async with backend.create(SandboxSpec(source, network=OFFLINE)):
        assert not any(name in removed for removed in await backend.prune(dry_run=True))
    assert any(name in removed for removed in await backend.prune(dry_run=True))
    assert await docker.images.inspect(name)
    await docker.images.delete(name, force=True)
