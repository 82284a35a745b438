"""restrained: processes that already run lose the power to make symbolic links, and nothing else."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import SandboxError, SandboxUnsupported
from benchflow.testing.contract.world import bounded, shell, unique, wait_runs

if TYPE_CHECKING:
    from benchflow.sandbox.base import Capabilities, Sandbox
    from benchflow.testing.contract.world import World

LINKING = r"""
my $round = 0;
while (1) {
  $round++;
  my $did = (symlink("x", "link$$") ? "links" : "does not");
  unlink "link$$";
  my $child = `perl -e 'print symlink("x", "child$$") ? "links" : "does not"; unlink "child$$"'`;
  open F, ">", "next$$" or die; print F "$round/$did/$child"; close F; rename "next$$", "state";
  select undef, undef, undef, 0.01;
}
"""
"""Says in a file, round by round, whether it and a child of it can make links."""

TRACED = "syscall(101, 0, 0, 0, 0) == 0 or die; exec 'true'"
"""Traced by its parent, it waits for that to let it go on."""


@bounded
class RestraintContract:
    async def test_links_and_nothing_else(self, box: Sandbox, capabilities: Capabilities) -> None:
        folder = await _linking(box, capabilities)
        assert (await _state(box, folder))[1:] == ["links", "links"]
        async with box.restrained():
            stands = await _state(box, folder)
            await asyncio.sleep(0.1)
            assert await _state(box, folder) == stands
        assert (await _state(box, folder, after=int(stands[0]) + 1))[1:] == ["does not", "does not"]
        # Others are as before.
        assert await shell(box, f"cd {folder} && ln -s x mine && readlink mine", user="nobody") == "x\n"
        assert await shell(box, f"cd {folder} && ln -s x roots && readlink roots", user=0) == "x\n"
        await box.kill_processes()

    async def test_twice_is_as_once(self, box: Sandbox, capabilities: Capabilities) -> None:
        folder = await _linking(box, capabilities)
        for _ in range(2):
            async with box.restrained():
                stands = await _state(box, folder)
        assert (await _state(box, folder, after=int(stands[0]) + 1))[1:] == ["does not", "does not"]
        await box.kill_processes()

    async def test_root_is_left_alone(self, box: Sandbox, capabilities: Capabilities) -> None:
        _needs_it(capabilities)
        kept = unique()
        await box.exec(f"sleep {kept} >/dev/null 2>&1 &", user=0)
        await wait_runs(box, kept)
        async with box.restrained():
            assert (await box.exec(["ln", "-s", "x", f"/tmp/link-{kept}"], user=0)).ok
        await wait_runs(box, kept)
        await box.kill_processes()

    async def test_who_cannot_be_held_to_it_is_killed(self, box: Sandbox, capabilities: Capabilities) -> None:
        _needs_it(capabilities)
        tracer = unique()
        script = f'perl -e "$1" > /dev/null 2>&1 & echo $!; exec sleep {tracer} > /dev/null 2>&1'
        async with await box.open(["sh", "-c", script, "sh", TRACED], user="nobody", cwd="/") as stream:
            traced = int(await stream.stdout.readline())
            while "tracing stop" not in (state := await _status(box, traced)):
                assert state
            async with box.restrained():
                pass
            assert (await _status(box, traced)) in ("", "zombie")
            await wait_runs(box, tracer)

    async def test_cancelled_it_lets_everything_go_on(self, box: Sandbox, capabilities: Capabilities) -> None:
        folder = await _linking(box, capabilities)
        for seconds in (0.0, 0.002, 0.005, 0.01, 0.02):
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds), box.restrained():
                    await asyncio.sleep(60)
        await _state(box, folder, after=int((await _state(box, folder))[0]) + 1)
        await box.kill_processes()

    async def test_stopped_within(self, world: World, capabilities: Capabilities) -> None:
        async with world.create() as box:
            await _linking(box, capabilities)
            with suppress(SandboxError):
                async with box.restrained():
                    await box.stop()

    async def test_it_is_done_or_refused(self, box: Sandbox, capabilities: Capabilities) -> None:
        refused = nullcontext() if capabilities.restrain else pytest.raises(SandboxUnsupported)
        with refused:
            async with box.restrained():
                pass


def _needs_it(capabilities: Capabilities) -> None:
    if not (capabilities.restrain and capabilities.users):
        pytest.skip("cannot restrain processes")


async def _linking(box: Sandbox, capabilities: Capabilities) -> str:
    """Start somebody who makes links; returns the folder in which."""
    _needs_it(capabilities)
    folder = f"/contract-{unique()}"
    await shell(box, f"mkdir -m 1777 {folder}", user=0)
    await box.exec(["sh", "-c", 'perl -e "$1" >/dev/null 2>&1 &', "sh", LINKING], user="nobody", cwd=folder)
    await _state(box, folder)
    return folder


async def _state(box: Sandbox, folder: str, *, after: int = 0) -> list[str]:
    while True:
        with suppress(FileNotFoundError):
            found = (await box.read(f"{folder}/state")).decode().split("/")
            if int(found[0]) > after:
                return found
        await asyncio.sleep(0.01)


async def _status(box: Sandbox, pid: int) -> str:
    """What a process does, in the kernel's word."""
    found = await box.exec(f"sed -n 's/^State:.*(\\(.*\\))/\\1/p' /proc/{pid}/status", user=0)
    return found.text.strip()
