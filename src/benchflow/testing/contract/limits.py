"""Limits: those that a backend says it enforces are enforced, and the sandbox survives reaching them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import SandboxUnsupported
from benchflow.sandbox.base import HostRoot, Limits, Mount, Network
from benchflow.testing.contract.world import bounded, commands, shell

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.sandbox.base import Capabilities, NetworkMode, Sandbox
    from benchflow.testing.contract.world import World

ALL_MODES: frozenset[NetworkMode] = frozenset({"public", "no-network", "allowlist"})

FORKS = r"""
my @k; while (@k < 400) { my $p = fork; last unless defined $p; if (!$p) { sleep 1000; exit } push @k, $p }
print scalar @k; kill 9, @k; wait for @k;
"""

BURN = r"""
for (1, 2) { fork or do { my $end = time + 4; 1 while time < $end; exit } } wait for 1, 2;
my @t = times; print $t[2] + $t[3];
"""

HOGS = r"""
$| = 1; pipe my $hold, my $held;
for (1..4) {
    pipe my $said, my $say;
    if (!fork) { close $held; $x = "x" x (60 << 20); $x .= "y"; syswrite $say, "y"; sysread $hold, $b, 1;
                 print "survived\n"; exit }
    close $say; sysread $said, $b, 1;
}
close $held; 1 while wait > 0;
"""
"""Four that hold their memory until the last of them has either got its own or been killed for it."""


@bounded
class LimitContract:
    async def test_memory(self, world: World, capabilities: Capabilities) -> None:
        if "memory" not in capabilities.limits:
            pytest.skip("no memory limit")
        async with world.create(limits=Limits(memory_mb=128)) as box:
            hog = await box.exec(["perl", "-e", '$x = "x" x (100 << 20); $y = $x . $x . $x . $x; print "had it"'])
            assert b"had it" not in hog.stdout
            assert hog.exit_code != 0
            assert (await box.exec(["perl", "-e", '$x = "x" x (16 << 20); print "fits"'])).stdout == b"fits"

    async def test_pids(self, world: World, capabilities: Capabilities) -> None:
        if "pids" not in capabilities.limits:
            pytest.skip("no limit on processes")
        async with world.create(limits=Limits(pids=64)) as box:
            made = await box.exec(["perl", "-e", FORKS])
            assert 0 < int(made.stdout) < 64
            assert (await box.exec(["true"])).ok

    async def test_pids_limit_reached_and_left(self, world: World, capabilities: Capabilities) -> None:
        if "pids" not in capabilities.limits:
            pytest.skip("no limit on processes")
        async with world.create(limits=Limits(pids=64)) as box:
            bomb = "bomb() { bomb | bomb & }; bomb"
            await box.exec(bomb, timeout=3)
            await box.kill_processes()
            assert len(await commands(box)) < 20
            assert (await box.exec(["true"])).ok

    async def test_cpus(self, world: World, capabilities: Capabilities) -> None:
        if "cpus" not in capabilities.limits:
            pytest.skip("no limit on processor time")
        async with world.create(limits=Limits(cpus=0.5)) as box:
            start = time.monotonic()
            used = float(await shell(box, f"perl -e '{BURN}'"))
            share = used / (time.monotonic() - start)
        assert share < 0.8

    async def test_storage(self, world: World, capabilities: Capabilities) -> None:
        if "storage" not in capabilities.limits:
            pytest.skip("no limit on storage")
        async with world.create(limits=Limits(storage_mb=64)) as box:
            assert (await box.exec("head -c 16000000 /dev/zero > /fits && rm /fits")).ok
            assert not (await box.exec("head -c 200000000 /dev/zero > /too-big")).ok
            assert (await box.exec("rm -f /too-big && echo x > /again && cat /again")).stdout == b"x\n"

    async def test_what_is_lacking_is_refused_beforehand(
        self, world: World, capabilities: Capabilities, tmp_path: Path
    ) -> None:
        if not capabilities.gpus:
            with pytest.raises(SandboxUnsupported):
                world.create(limits=Limits(gpus=1))
        for mode in ALL_MODES - capabilities.network:
            with pytest.raises(SandboxUnsupported):
                world.create(network=Network(mode, allowed_hosts=("example.org",)))
        if not capabilities.host_root:
            with pytest.raises(SandboxUnsupported):
                world.create(image=HostRoot())
        if not capabilities.mounts:
            with pytest.raises(SandboxUnsupported):
                world.create(mounts=(Mount(tmp_path, "/mnt"),))
        for name, limit in (
            ("memory", Limits(memory_mb=64)),
            ("cpus", Limits(cpus=1)),
            ("storage", Limits(storage_mb=64)),
        ):
            if name not in capabilities.limits:
                with pytest.raises(SandboxUnsupported):
                    world.create(limits=limit)

    async def test_a_limit_is_seen_by_all_processes_together(self, world: World, capabilities: Capabilities) -> None:
        if "memory" not in capabilities.limits:
            pytest.skip("no memory limit")
        async with world.create(limits=Limits(memory_mb=128)) as box:
            result = await box.exec(["perl", "-e", HOGS])
            assert result.stdout.count(b"survived") < 4
            await _lives(box)


async def _lives(box: Sandbox) -> None:
    assert (await box.exec(["true"])).ok
