"""Images from a folder with a Dockerfile: what it says is what a sandbox starts with, and a failure says where."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import SandboxBuildError
from benchflow.sandbox.base import BuildContext
from benchflow.testing.contract.world import bounded, shell

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.sandbox.base import Capabilities
    from benchflow.testing.contract.world import World

DOCKERFILE = """\
FROM {base}
ARG GREETING=hello
ENV BF_BUILT="$GREETING world" BF_OTHER=1
WORKDIR /srv/built
COPY . ./files/
COPY --chown=65534:65534 tool /usr/local/bin/contract-tool
RUN echo "seen during the build: $BF_BUILT" && cat /proc/sys/kernel/random/uuid > stamp && rm -f /etc/issue
USER nobody
LABEL kept="yes"
CMD ["sleep", "1"]
"""


def write_context(folder: Path, base: str) -> BuildContext:
    (folder / "sub").mkdir(parents=True)
    (folder / "Dockerfile").write_text(DOCKERFILE.format(base=base))
    (folder / ".dockerignore").write_text("*.secret\n!kept.secret\nsub/left-out\n")
    for name in ("a.secret", "kept.secret", "sub/left-out", "sub/file with space"):
        (folder / name).write_text(name)
    (folder / "tool").write_text("#!/bin/sh\necho tool\n")
    (folder / "tool").chmod(0o755)
    return BuildContext(folder)


@bounded
class BuildContract:
    @pytest.fixture
    def base(self, base_name: str | None) -> str:
        if base_name is None:
            pytest.skip("no image by name")
        return base_name

    async def test_a_dockerfile_is_what_it_says(
        self, world: World, capabilities: Capabilities, base: str, tmp_path: Path
    ) -> None:
        context = write_context(tmp_path / "context", base)
        async with world.create(image=context) as box:
            assert box.workdir == "/srv/built"
            assert (box.env["BF_BUILT"], box.env["BF_OTHER"]) == ("hello world", "1")
            assert (await box.exec("pwd; echo $BF_BUILT")).text == "/srv/built\nhello world\n"
            if capabilities.users:
                assert (await box.exec(["id", "-un"])).text == "nobody\n"
                assert await shell(box, "stat -c %u /usr/local/bin/contract-tool") == "65534\n"
            assert (await box.exec(["contract-tool"])).text == "tool\n"
            assert not (await box.exec(["test", "-e", "/etc/issue"])).ok
            found = await shell(box, "cd files && find . -type f | sort")
            assert "./a.secret" not in found.splitlines()
            assert "./sub/left-out" not in found.splitlines()
            assert {"./kept.secret", "./sub/file with space", "./tool"} <= set(found.splitlines())

    async def test_many_that_want_one_image_get_the_same(self, world: World, base: str, tmp_path: Path) -> None:
        async def stamp(folder: str) -> str:
            async with world.create(image=write_context(tmp_path / folder, base)) as box:
                return await shell(box, "cat /srv/built/stamp")

        async with asyncio.TaskGroup() as group:
            stamps = [group.create_task(stamp(f"context{n}")) for n in range(4)]
        assert len({task.result() for task in stamps}) == 1

    async def test_a_failing_step_is_named_with_its_output(self, world: World, base: str, tmp_path: Path) -> None:
        (tmp_path / "Dockerfile").write_text(f"FROM {base}\nRUN echo before\nRUN echo the-reason >&2; exit 7\n")
        lines: list[str] = []
        with pytest.raises(SandboxBuildError) as caught:
            await world.backend.prepare(BuildContext(tmp_path), log=lines.append)
        assert "exit 7" in caught.value.step
        assert "the-reason" in caught.value.output
        assert any("the-reason" in line for line in lines)
        sandbox = world.create(image=BuildContext(tmp_path))
        with pytest.raises(SandboxBuildError):
            await sandbox.start()
        await sandbox.stop()

    async def test_a_build_that_takes_too_long(self, world: World, base: str, tmp_path: Path) -> None:
        (tmp_path / "Dockerfile").write_text(f"FROM {base}\nRUN sleep 120\n")
        with pytest.raises(SandboxBuildError):
            await world.backend.prepare(BuildContext(tmp_path), timeout=3)

    async def test_a_cancelled_build_leaves_nothing(self, world: World, base: str, tmp_path: Path) -> None:
        (tmp_path / "Dockerfile").write_text(f"FROM {base}\nRUN echo started && sleep 120\n")
        started = asyncio.Event()

        def log(line: str) -> None:
            if "started" in line.split():
                started.set()

        task = asyncio.create_task(world.backend.prepare(BuildContext(tmp_path), log=log))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_a_dockerfile_that_is_not_there(self, world: World, base: str, tmp_path: Path) -> None:
        with pytest.raises(SandboxBuildError, match="Dockerfile"):
            await world.backend.prepare(BuildContext(tmp_path))
