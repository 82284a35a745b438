"""The host is out of reach, for root inside and for everybody else: its variables, files, processes and devices."""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchflow.testing.contract.world import bounded, commands, shell, unique, wait_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.sandbox.base import Capabilities, Sandbox
    from benchflow.testing.contract.world import World

HOST_SECRET = "BENCHFLOW_CONTRACT_HOST_SECRET"

GREP_ENVIRONMENTS = r"""
$/ = undef; my $n = 0;
for (glob "/proc/[0-9]*/environ") { open F, $_ or next; my $e = <F>; $n++; print "$_\n" if index($e, $ARGV[0]) >= 0 }
die "none readable\n" unless $n;
"""

READ_DISK = r"""
my ($path, $major, $minor) = @ARGV;
system('mknod', $path, 'b', $major, $minor) == 0 or exit 0;
open F, $path or exit 0; sysread(F, my $b, 512) or exit 0; print 'read the disk'
"""

SHARE = r"""
use Socket; $| = 1; my $key = $ARGV[0];
defined msgget($key, 01600) or die; defined semget($key, 1, 01600) or die; defined shmget($key, 4096, 01600) or die;
socket(S, AF_UNIX, SOCK_STREAM, 0) or die;
bind(S, pack('S a*', AF_UNIX, "\0contract-$key")) or die; listen(S, 5) or die;
print "ready\n"; sleep 1000;
"""
FIND = r"""
use Socket; my $key = $ARGV[0];
print "queue " if defined msgget($key, 0); print "semaphore " if defined semget($key, 0, 0);
print "memory " if defined shmget($key, 0, 0);
socket(S, AF_UNIX, SOCK_STREAM, 0) or die;
print "socket" if connect(S, pack('S a*', AF_UNIX, "\0contract-$key"));
"""
ADD_KEY = 'my ($type, $name, $value) = ("user", "contract", "x"); exit(syscall(248, $type, $name, $value, 1, -4) < 0)'
"""add_key to the keyring of the user, which all sandboxes and the host share; by its number on x86_64."""


@bounded
class IsolationContract:
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def host_secret(cls) -> Iterator[str]:
        """A variable of this process, set before the backend is first used."""
        secret = secrets.token_hex(16)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(HOST_SECRET, secret)
            yield secret

    @pytest.mark.parametrize("user", ["root", "nobody"])
    async def test_host_variables(self, box: Sandbox, capabilities: Capabilities, host_secret: str, user: str) -> None:
        _needs_users(capabilities, user)
        assert HOST_SECRET not in (await box.exec(["env"], user=user)).text
        found = await box.exec(["perl", "-e", GREP_ENVIRONMENTS, host_secret], user=user)
        assert (found.exit_code, found.text) == (0, ""), found

    async def test_host_processes(self, box: Sandbox) -> None:
        number = unique()
        process = await asyncio.create_subprocess_exec("sleep", str(number))
        try:
            listed = await commands(box)
        finally:
            process.kill()
            await process.wait()
        assert f"sleep {number}" not in listed
        assert len(listed) < 20

    @pytest.mark.parametrize("user", ["root", "nobody"])
    async def test_host_files(self, box: Sandbox, capabilities: Capabilities, tmp_path: Path, user: str) -> None:
        _needs_users(capabilities, user)
        path = tmp_path / "host-file"
        path.write_text("of the host", encoding="ascii")
        for reachable in (path, Path(f"/proc/1/root/{path}"), Path.home() / ".cache" / "benchflow"):
            assert not (await box.exec(["ls", "-d", str(reachable)], user=user)).ok, reachable
        escape = f"cd / && cd {'../' * 40} && cat .{path}"
        assert b"of the host" not in (await box.exec(escape, user=user)).stdout

    async def test_host_is_not_written(self, box: Sandbox) -> None:
        name = f"benchflow-contract-{unique()}"
        places = ("/", "/etc", "/usr", "/tmp", "/var/tmp", "/root", "/run", "/dev/shm", "/home", "/opt")
        for place in places:
            await box.exec(f"echo x > {place}/{name}", user=0)
        assert not [place for place in places if Path(place, name).exists()]

    async def test_host_sockets(self, box: Sandbox) -> None:
        for path in (
            "/var/run/docker.sock",
            "/run/docker.sock",
            "/run/podman/podman.sock",
            "/run/containerd",
            "/run/dbus",
        ):
            assert not (await box.exec(["test", "-e", path], user=0)).ok, path

    async def test_host_devices(self, box: Sandbox) -> None:
        devices = (await shell(box, "ls /dev")).split()
        assert not [name for name in devices if name.startswith(("sd", "vd", "nvme", "dm-", "loop", "mem", "kmsg"))]
        assert {"null", "zero", "full", "random", "urandom", "tty", "fd", "stdin", "stdout", "stderr"} <= set(devices)
        root = Path("/").stat().st_dev
        result = await box.exec(
            ["perl", "-e", READ_DISK, f"/contract-disk-{unique()}", str(os.major(root)), str(os.minor(root))], user=0
        )
        assert result.stdout == b"", result

    @pytest.mark.parametrize(
        "path",
        [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/hostname",
            "/proc/sysrq-trigger",
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "/proc/sys/vm/overcommit_memory",
        ],
    )
    async def test_the_kernel_cannot_be_set(self, box: Sandbox, path: str) -> None:
        """Opening for appending writes nothing, so that a sandbox that fails this test does no harm."""
        if Path(path).exists():
            assert not (await box.exec(f": >> {path}", user=0)).ok

    async def test_memory_of_the_kernel_cannot_be_read(self, box: Sandbox) -> None:
        for path in ("/proc/kcore", "/dev/mem", "/dev/kmsg"):
            assert (await box.exec(["head", "-c", "16", path], user=0)).stdout.strip(b"\0") == b""

    async def test_mounting_is_refused(self, box: Sandbox) -> None:
        for script in (
            "mount -t tmpfs x /mnt",
            "mount -t proc x /mnt",
            "mount --bind /usr /mnt",
            "mount -o remount,rw /proc/sys",
        ):
            assert not (await box.exec(script, user=0)).ok, script

    async def test_dangerous_capabilities_are_dropped(self, box: Sandbox) -> None:
        status = await shell(box, "grep CapBnd /proc/self/status")
        bounding = int(status.split()[1], 16)
        for name, number in (
            ("SYS_MODULE", 16),
            ("SYS_RAWIO", 17),
            ("SYS_ADMIN", 21),
            ("SYS_BOOT", 22),
            ("SYS_TIME", 25),
        ):
            assert not bounding >> number & 1, name

    async def test_sandboxes_do_not_see_each_other(self, world: World, box: Sandbox) -> None:
        number = unique()
        name = f"contract-{number}"
        async with (
            world.create() as other,
            await other.open(f"echo x > /{name}; echo x > /dev/shm/{name}; sleep {number}"),
        ):
            await wait_runs(other, number)
            assert f"sleep {number}" not in await commands(box)
            assert not (await box.exec(f"ls /{name} || ls /dev/shm/{name}", user=0)).ok

    async def test_sandboxes_share_no_objects_without_a_path(self, world: World, box: Sandbox) -> None:
        key = str(unique())
        async with world.create() as other, await other.open(["perl", "-e", SHARE, key]) as shares:
            assert await shares.stdout.readline() == b"ready\n"
            assert (await other.exec(["perl", "-e", FIND, key])).text == "queue semaphore memory socket"
            assert (await box.exec(["perl", "-e", FIND, key])).text == ""

    @pytest.mark.skipif(os.uname().machine != "x86_64", reason="the call has another number")
    @pytest.mark.parametrize("user", ["root", "nobody"])
    async def test_nothing_is_left_in_a_keyring(self, box: Sandbox, capabilities: Capabilities, user: str) -> None:
        _needs_users(capabilities, user)
        assert (await box.exec(["perl", "-e", ADD_KEY], user=user)).exit_code == 1


def _needs_users(capabilities: Capabilities, user: str) -> None:
    if user != "root" and not capabilities.users:
        pytest.skip("one uid only")
