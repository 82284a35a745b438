"""fork: the same files, none of the processes, and an original that does not notice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from benchflow.sandbox.base import Mount, Network
from benchflow.testing.contract.network import connects
from benchflow.testing.contract.world import bounded, commands, fresh_folder, runs, shell, unique, wait_runs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from benchflow.sandbox.base import Capabilities, Sandbox
    from benchflow.testing.contract.world import World

LIST = "cd {} && find . -printf '%p %y %m %U %G %l\\n' | sort && find . -type f -exec cksum {{}} + | sort"


@bounded
class ForkContract:
    @pytest.fixture(autouse=True)
    def _only_with_fork(self, request: pytest.FixtureRequest, capabilities: Capabilities) -> None:
        if request.node.name.startswith("test_fork") and not capabilities.fork:
            pytest.skip("this backend does not fork")

    @pytest_asyncio.fixture(loop_scope="class")
    async def original(self, world: World) -> AsyncIterator[Sandbox]:
        """A sandbox of its own: what being forked adds to an original may stay as long as the original does."""
        async with world.create() as sandbox:
            yield sandbox

    async def test_fork_has_the_same_files(self, world: World, original: Sandbox) -> None:
        folder = await fresh_folder(original)
        await shell(
            original,
            f"""cd {folder} && mkdir -p a/b c && echo 1 > a/file && ln -s a/file link && ln a/file a/hard
            chmod 600 a/file && chown 65534:65534 c && head -c 3000000 /dev/urandom > a/b/big && mkfifo a/fifo
            rm -rf /usr/share/perl5/Debconf; rm -f /etc/issue; echo changed > /etc/issue.net
            rm -rf /etc/skel && mkdir /etc/skel && echo only > /etc/skel/one""",
        )
        before = await shell(original, LIST.format(folder))
        async with world.adopt(await original.fork()) as fork:
            assert await shell(fork, LIST.format(folder)) == before
            assert await shell(fork, "ls -A /etc/skel; cat /etc/issue.net") == "one\nchanged\n"
            assert not (await fork.exec(["test", "-e", "/etc/issue"])).ok
            assert fork.id != original.id
            assert (fork.backend, fork.workdir, dict(fork.env)) == (
                original.backend,
                original.workdir,
                dict(original.env),
            )
        assert await shell(original, LIST.format(folder)) == before

    async def test_fork_and_original_do_not_see_each_other(self, world: World, original: Sandbox) -> None:
        folder = await fresh_folder(original)
        await shell(original, f"cd {folder} && echo 0 > both && echo 0 > gone-in-fork && echo 0 > gone-in-box")
        async with world.adopt(await original.fork()) as fork:
            await shell(fork, f"cd {folder} && echo fork >> both && rm gone-in-fork && echo 1 > of-fork")
            await shell(original, f"cd {folder} && echo box >> both && rm gone-in-box && echo 1 > of-box")
            await original.put({"put": b"box"}, folder)
            await fork.put({"put": b"fork"}, folder)
            assert (
                await shell(fork, f"cd {folder} && ls && cat both put")
                == "both\ngone-in-box\nof-fork\nput\n0\nfork\nfork"
            )
        assert (
            await shell(original, f"cd {folder} && ls && cat both put")
            == "both\ngone-in-fork\nof-box\nput\n0\nbox\nbox"
        )

    async def test_fork_has_no_processes_and_the_original_keeps_its_own(self, world: World, original: Sandbox) -> None:
        number = unique()
        async with await original.open(f"sleep {number} & cat") as stream:
            await wait_runs(original, number)
            async with world.adopt(await original.fork()) as fork:
                assert not await runs(fork, number)
                assert not any("cat" in line.split() for line in await commands(fork))
                await stream.write(b"still there\n")
                assert await stream.stdout.readexactly(12) == b"still there\n"
            assert await runs(original, number)

    async def test_fork_of_a_busy_one_is_one_moment(self, world: World, original: Sandbox) -> None:
        folder = await fresh_folder(original)
        count = f"cd {folder} && n=0; while :; do n=$((n + 1)); echo $n >> log; done"
        async with await original.open(count):
            forks = []
            for _ in range(2):
                await _more_lines(original, folder)
                forks.append(world.adopt(await original.fork()))
            for fork in forks:
                lines = (await shell(fork, f"cat {folder}/log")).splitlines()
                assert lines == [str(n) for n in range(1, len(lines) + 1)]
                assert (await shell(fork, f"wc -l < {folder}/log")).strip() == str(len(lines))
                await fork.stop()
            await _more_lines(original, folder)

    async def test_fork_of_a_fork(self, world: World, original: Sandbox) -> None:
        folder = await fresh_folder(original)
        await shell(original, f"echo 1 > {folder}/log; echo 1 > {folder}/gone")
        async with world.adopt(await original.fork()) as child:
            await shell(child, f"echo 2 >> {folder}/log; rm {folder}/gone")
            async with world.adopt(await child.fork()) as grandchild:
                await shell(grandchild, f"echo 3 >> {folder}/log")
                await child.stop()
                assert await shell(grandchild, f"cat {folder}/log; ls {folder}") == "1\n2\n3\nlog\n"
        assert await shell(original, f"cat {folder}/log; ls {folder}") == "1\ngone\nlog\n"

    async def test_forks_at_once(self, world: World, original: Sandbox) -> None:
        folder = await fresh_folder(original)
        await shell(original, f"echo 0 > {folder}/file")
        forks = [world.adopt(fork) for fork in await asyncio.gather(original.fork(), original.fork())]
        try:
            assert len({original.id, *(fork.id for fork in forks)}) == 3
            await asyncio.gather(*(shell(fork, f"echo {n} >> {folder}/file") for n, fork in enumerate(forks)))
            for number, fork in enumerate(forks):
                assert await shell(fork, f"cat {folder}/file") == f"0\n{number}\n"
        finally:
            await asyncio.gather(*(fork.stop() for fork in forks))
        assert await shell(original, f"cat {folder}/file") == "0\n"

    async def test_fork_outlives_the_original(self, world: World) -> None:
        async with world.create() as original:
            folder = await fresh_folder(original)
            await shell(original, f"echo 1 > {folder}/file")
            fork = world.adopt(await original.fork())
        async with fork:
            assert await shell(fork, f"cat {folder}/file") == "1\n"
            await fork.put({"file": b"2"}, folder)
            assert await fork.read(f"{folder}/file") == b"2"

    async def test_fork_keeps_mounts_and_settings(
        self, world: World, capabilities: Capabilities, tmp_path: Path
    ) -> None:
        if not capabilities.mounts:
            pytest.skip("no mounts")
        (tmp_path / "file").write_bytes(b"mounted")
        async with world.create(
            mounts=(Mount(tmp_path, "/mnt/in"),), workdir="/srv", env={"BF_SPEC": "kept"}
        ) as original:
            async with world.adopt(await original.fork(name="named")) as fork:
                assert await shell(fork, "cat /mnt/in/file; pwd; echo $BF_SPEC") == "mounted/srv\nkept\n"
                assert not (await fork.exec("echo x > /mnt/in/file")).ok
            assert await shell(original, "cat /mnt/in/file") == "mounted"

    async def test_fork_with_another_network(self, world: World, capabilities: Capabilities) -> None:
        if not {"public", "no-network"} <= capabilities.network:
            pytest.skip("one kind of network only")
        async with (
            world.create(network=Network("public")) as original,
            world.adopt(await original.fork(network=Network("no-network"))) as fork,
        ):
            interfaces = await shell(fork, "sed 1,2d /proc/net/dev | cut -d: -f1")
            assert interfaces.split() == ["lo"]
            assert not await connects(fork, "192.0.2.1", 80)

    async def test_forks_can_be_given_up_while_they_are_made(self, world: World, original: Sandbox) -> None:
        for steps in (0, 1, 3, 10, 30, 100, 300):
            task = asyncio.create_task(original.fork())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            try:
                fork = await task
            except asyncio.CancelledError:
                continue
            await world.adopt(fork).stop()
        assert (await original.exec(["true"])).ok


async def _more_lines(box: Sandbox, folder: str) -> None:
    """Until the log has grown by a hundred lines: whoever writes it is alive."""
    count = f"$(wc -l < {folder}/log || echo 0)"
    script = f"n={count}; while [ {count} -lt $((n + 100)) ]; do :; done"
    result = await box.exec(script, timeout=60)
    assert result.ok, result
