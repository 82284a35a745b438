"""start and stop: a sandbox begins whole or not at all, and ends without a trace, however it is reached."""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import SandboxError, SandboxGone
from benchflow.sandbox.base import Mount, Sandbox
from benchflow.testing.contract.hostile import DIG
from benchflow.testing.contract.interrupt import count_waits, run_interrupted, spread
from benchflow.testing.contract.network import echo
from benchflow.testing.contract.world import bounded, commands, shell, unique, wait_runs

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.sandbox.base import Backend, Capabilities, ImageSource
    from benchflow.testing.contract.world import World

CALLS = ("exec", "open", "put", "get", "read", "listen", "fork", "kill_processes")


@bounded
class LifecycleContract:
    cancel_points = 12
    """At how many of its waits a call is cancelled, each in a run of its own."""

    crowd = 16
    """How many sandboxes are started at once."""

    async def test_it_is_a_sandbox(self, world: World, box: Sandbox) -> None:
        assert isinstance(box, Sandbox)
        assert box.backend == world.backend.name
        assert box.id
        assert isinstance(box.notes, tuple)
        assert box.workdir.startswith("/")
        assert box.capabilities == world.capabilities

    async def test_spec_settings(self, world: World) -> None:
        async with world.create(env={"BF_SPEC": "a b\nc", "PATH": "/usr/bin:/bin"}, workdir="/srv/made/for/it") as box:
            assert (box.workdir, box.env["BF_SPEC"], box.env["PATH"]) == ("/srv/made/for/it", "a b\nc", "/usr/bin:/bin")
            assert await shell(box, 'pwd; echo "$BF_SPEC"; echo $PATH') == "/srv/made/for/it\na b\nc\n/usr/bin:/bin\n"

    async def test_sandboxes_begin_alike(self, world: World) -> None:
        async with world.create() as first:
            await shell(first, "echo x > /left-over; rm -f /etc/issue")
        async with world.create() as second:
            assert (await second.exec("test ! -e /left-over && test -e /etc/issue")).ok

    async def test_mounts(self, world: World, capabilities: Capabilities, tmp_path: Path) -> None:
        if not capabilities.mounts:
            pytest.skip("no mounts")
        for name in ("in", "out"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "file").write_bytes(b"of the host")
        (tmp_path / "one").write_bytes(b"a file")
        mounts = (
            Mount(tmp_path / "in", "/mnt/deep/in"),
            Mount(tmp_path / "out", "/mnt/out", writable=True),
            Mount(tmp_path / "one", "/etc/one"),
            Mount(tmp_path / "in", "/var/run/linked"),
        )
        async with world.create(mounts=mounts) as box:
            assert await shell(box, "cat /mnt/deep/in/file /mnt/out/file /etc/one") == "of the host" * 2 + "a file"
            assert not (await box.exec("echo x > /mnt/deep/in/file", user=0)).ok
            assert not (await box.exec("rm /mnt/deep/in/file", user=0)).ok
            assert not (await box.exec("echo x > /etc/one", user=0)).ok
            await shell(box, "echo inside > /mnt/out/new")
            assert await shell(box, "cat /run/linked/file") == "of the host"
        assert (tmp_path / "out" / "new").read_text() == "inside\n"
        assert (tmp_path / "in" / "file").read_bytes() == b"of the host"

    async def test_prepare_is_safe_to_repeat_and_to_share(self, world: World) -> None:
        await asyncio.gather(*(world.backend.prepare(world.image) for _ in range(4)))
        await world.backend.prepare(world.image)

    async def test_a_failed_start_leaves_nothing(self, world: World, broken_image: ImageSource) -> None:
        before = await world.note_ids()
        for _ in range(2):
            sandbox = world.create(image=broken_image)
            with pytest.raises(SandboxError):
                await sandbox.start()
            await sandbox.stop()
        assert await world.note_ids() == before

    async def test_a_mount_that_is_not_there_fails_the_start(
        self, world: World, capabilities: Capabilities, tmp_path: Path
    ) -> None:
        if not capabilities.mounts:
            pytest.skip("no mounts")
        sandbox = world.create(mounts=(Mount(tmp_path / "missing", "/mnt"),))
        with pytest.raises(SandboxError, match="missing"):
            await sandbox.start()
        await sandbox.stop()
        assert not (tmp_path / "missing").exists()

    async def test_stop_of_what_never_started(self, world: World) -> None:
        sandbox = world.create()
        await sandbox.stop()
        await sandbox.stop()

    async def test_stop_twice_and_at_once(self, world: World) -> None:
        sandbox = world.create()
        await sandbox.start()
        await asyncio.gather(*(sandbox.stop() for _ in range(3)))
        await sandbox.stop()
        with pytest.raises(SandboxError):
            await sandbox.exec(["true"])

    async def test_stop_ends_what_runs_inside(self, world: World) -> None:
        sandbox = world.create()
        await sandbox.start()
        first, child, second = unique(), unique(), unique()
        stream = await sandbox.open(["sleep", str(first)])
        running = asyncio.create_task(sandbox.exec(f"setsid sleep {child} & sleep {second}"))
        waiting = asyncio.create_task(stream.wait())
        await wait_runs(sandbox, first, child, second)
        await sandbox.stop()
        for task in (running, waiting):
            with pytest.raises(SandboxGone):
                await task
        await stream.kill()

    async def test_stop_while_files_move(self, world: World, tmp_path: Path) -> None:
        (tmp_path / "big").write_bytes(os.urandom(8_000_000))
        sandbox = world.create()
        await sandbox.start()
        tasks = [asyncio.create_task(sandbox.put(tmp_path / "big", f"/big{n}")) for n in range(4)]
        await asyncio.sleep(0)
        await sandbox.stop()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert result is None or isinstance(result, SandboxError), result

    async def test_stop_while_it_starts(self, world: World) -> None:
        for steps in (0, 1, 5, 25, 100):
            sandbox = world.create()
            starting = asyncio.create_task(sandbox.start())
            for _ in range(steps):
                await asyncio.sleep(0)
            await sandbox.stop()
            result = (await asyncio.gather(starting, return_exceptions=True))[0]
            assert result is None or isinstance(result, SandboxError), result
            await sandbox.stop()

    async def test_cancelled_anywhere_nothing_is_left(self, world: World) -> None:
        async def life() -> None:
            async with world.create() as sandbox:
                await sandbox.exec("echo 1 > /file; sleep 1000 >/dev/null 2>&1 &")
                await sandbox.put({"file": b"2"}, "/srv")
                async with await sandbox.open(["cat"]) as stream:
                    await stream.write(b"3\n")
                    await stream.stdout.readexactly(2)

        before = await world.note_ids()
        total = await count_waits(life())
        for point in spread(total, self.cancel_points):
            await run_interrupted(life(), point)
        assert await world.note_ids() == before

    @pytest.mark.parametrize("call", CALLS)
    async def test_a_cancelled_call_leaves_nothing(
        self, world: World, box: Sandbox, capabilities: Capabilities, tmp_path: Path, call: str
    ) -> None:
        if getattr(capabilities, call, True) is False:
            pytest.skip(f"no {call}")
        async with AsyncExitStack() as stack:
            # What being forked adds to an original may stay as long as the original does.
            target = await stack.enter_async_context(world.create()) if call == "fork" else box
            await target.put({"file": b"x" * 100_000}, "/contract/cancelled")
            total = await count_waits(_call(world, target, tmp_path, call))
            for point in spread(total, self.cancel_points):
                await run_interrupted(_call(world, target, tmp_path, call), point)
            assert await target.read("/contract/cancelled/file") == b"x" * 100_000

    async def test_many_at_once(self, world: World) -> None:
        async def life(number: int) -> str:
            async with world.create() as sandbox:
                await sandbox.put({"number": b"%d" % number}, "/srv")
                return await shell(sandbox, "cat /srv/number")

        async with asyncio.TaskGroup() as group:
            lives = [group.create_task(life(number)) for number in range(self.crowd)]
        assert [task.result() for task in lives] == [str(number) for number in range(self.crowd)]

    async def test_stop_removes_what_is_hard_to_remove(self, world: World) -> None:
        async with world.create() as sandbox:
            await shell(
                sandbox,
                f"""mkdir -p /srv/a && cd /srv/a && perl -e '{DIG}'
                mkdir -p /srv/locked/in && touch /srv/locked/in/file && chmod 0 /srv/locked/in /srv/locked
                mkfifo /srv/fifo; printf x > "/srv/$(printf 'odd\\377\\nname')"; chown -R 65534 /srv/locked || true""",
            )
            stuck = await sandbox.open("trap '' TERM INT HUP; exec 3</srv/locked/in/file; cd /srv/a; sleep 1000; :")
        await stuck.kill()

    async def test_closing_the_backend_stops_what_runs(self, world: World, backend_home: str) -> None:
        module, _, name = backend_home.partition(":")
        backend: Backend = getattr(importlib.import_module(module), name)()
        await backend.check()
        sandboxes = [world.adopt(backend.create(world.spec())) for _ in range(2)]
        for sandbox in sandboxes:
            await sandbox.start()
        await backend.close()
        assert not {sandbox.id for sandbox in sandboxes} & await world.note_ids()
        for sandbox in sandboxes:
            await sandbox.stop()

    async def test_a_cancelled_stop_still_stops(self, world: World) -> None:
        for steps in (1, 2, 3, 5, 20):
            async with world.create() as sandbox:
                await sandbox.exec("sleep 1000 >/dev/null 2>&1 &")
                task = asyncio.create_task(_leave(sandbox))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait({task})
                with pytest.raises(SandboxError):
                    await sandbox.exec(["true"])

    async def test_listed_while_it_lives(self, world: World) -> None:
        async with world.create() as sandbox:
            found = next(info for info in await world.backend.list() if info.id == sandbox.id)
            assert (found.backend, found.job, found.rollout) == (world.backend.name, world.token, "contract")
            assert (found.owner_pid, found.owner_alive) == (os.getpid(), True)
            assert found.created <= time.time() + 5
            assert found.state
        assert sandbox.id not in {info.id for info in await world.backend.list()}

    async def test_reap_spares_what_lives(self, world: World, box: Sandbox) -> None:
        assert box.id not in {info.id for info in await world.backend.reap(dry_run=True)}
        assert box.id not in {
            info.id for info in await world.backend.reap(everything=True, older_than=10_000_000, dry_run=True)
        }
        assert (await box.exec(["true"])).ok

    async def test_disk_use_and_prune_can_be_asked(self, world: World) -> None:
        used = await world.backend.disk_use()
        assert all(size >= 0 for size in used.values())
        await world.backend.prune(older_than=10_000_000, dry_run=True)

    async def test_the_first_process_reaps(self, box: Sandbox) -> None:
        await shell(box, "for n in 1 2 3 4 5; do (sh -c 'sleep 0.1 &' &); done; sleep 1")
        # What ends at this very moment, such as our own last command, is one until the first process comes to it.
        zombies = "for n in $(seq 50); do grep -l '^State:.Z' /proc/[0-9]*/status || exit 0; sleep 0.1; done; exit 1"
        assert (await box.exec(zombies)).ok, "zombies are left"
        assert len(await commands(box)) < 20


async def _call(world: World, box: Sandbox, folder: Path, call: str) -> None:
    """One call of each kind, ended in the way its result asks for."""
    match call:
        case "exec":
            await box.exec(["cat"], stdin=b"x" * 100_000)
        case "open":
            async with await box.open(["cat"]) as stream:
                await stream.write(b"x")
                await stream.stdout.readexactly(1)
                await stream.close_stdin()
                await stream.wait()
        case "put":
            await box.put({"file": b"x" * 100_000}, "/contract/cancelled")
        case "get":
            await box.get("/contract/cancelled", folder)
        case "read":
            await box.read("/contract/cancelled/file")
        case "listen":
            listener = await box.listen(echo)
            try:
                await box.exec(["true"])
            finally:
                await listener.close()
        case "fork":
            async with world.adopt(await box.fork()) as fork:
                await fork.exec(["true"])
        case "kill_processes":
            await box.kill_processes()


async def _leave(sandbox: Sandbox) -> None:
    await sandbox.__aexit__(None, None, None)
