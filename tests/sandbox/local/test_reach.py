"""The host stays out of reach, whoever tries from inside: system calls, devices, processes, files, sockets, kernel.

The contract suite asks the common questions of every backend; these are about what this one builds itself.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyseccomp
import pytest
import pytest_asyncio

from benchflow.sandbox.base import FileData
from benchflow.sandbox.local import commands
from benchflow.sandbox.local.seccomp import ALLOWED, CAPABILITIES, REFUSED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from benchflow.sandbox.local.box import Box
    from benchflow.sandbox.local.engine import BoxSpec, Engine

pytestmark = pytest.mark.needs("local", "rootfs")

EPERM, ENOSYS = 1, 38

CALLS = r"""
for (@ARGV) {
    my ($name, $c, @n) = split / /; @n = map { $_ + 0 } @n; $! = 0; my $r = syscall($c + 0, @n);
    print "$name ", ($r < 0 ? $!+0 : "worked"), "\n";
}
"""

TRACE = r"""
my ($ptrace, $pid) = @ARGV; my $r = syscall($ptrace + 0, 16, $pid + 0, 0, 0); print $r < 0 ? $!+0 : "traced";
"""

NEW_NAMESPACE = r"""
my ($clone, $flag) = map { $_ + 0 } @ARGV; my $r = syscall($clone, $flag | 17, 0, 0, 0, 0);
if ($r == 0) { exit 0 } print $r < 0 ? $!+0 : "made"; waitpid $r, 0 if $r > 0;
"""


def number(name: str) -> int:
    return int(pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name))


@pytest_asyncio.fixture
async def box(engine: Engine, spec: Callable[..., BoxSpec]) -> AsyncIterator[Box]:
    box = await engine.start_box(spec())
    yield box
    await box.stop()


@pytest.fixture(params=["root", "nobody"])
def user(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_system_calls(box: Box, user: str) -> None:
    refused = [name for group in REFUSED.values() for name in group.split() if number(name) >= 0]
    absent = [name for name in ("clone3", "fsinfo", "landlock_x") if number(name) >= 0]
    calls = [f"{name} {number(name)} 0 0 0 0" for name in (*refused, *absent)]
    result = await box.exec(["perl", "-e", CALLS, *calls], user=user)
    answers = dict(line.split() for line in result.text.splitlines())
    assert {name: answers[name] for name in refused} == dict.fromkeys(refused, str(EPERM))
    assert {name: answers[name] for name in absent} == dict.fromkeys(absent, str(ENOSYS))
    assert {"mount", "unshare", "bpf", "keyctl", "kexec_load", "io_uring_setup", "open_by_handle_at"} <= set(refused)


def test_no_call_is_both_allowed_and_refused() -> None:
    allowed, refused = ([name for group in groups.values() for name in group.split()] for groups in (ALLOWED, REFUSED))
    assert len(set(allowed)) == len(allowed)
    assert len(set(refused)) == len(refused)
    assert not set(allowed) & set(refused)
    assert not {"clone", "clone3", "personality", "socket"} & {*allowed, *refused}


@pytest.mark.parametrize("flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000])
async def test_no_new_namespaces(box: Box, user: str, flag: int) -> None:
    made = await box.exec(["perl", "-e", NEW_NAMESPACE, str(number("clone")), str(flag)], user=user)
    assert made.text == str(EPERM)


async def test_sockets_to_the_hypervisor(box: Box) -> None:
    result = await box.exec(["perl", "-e", CALLS, f"vsock {number('socket')} 40 1 0", f"inet {number('socket')} 2 1 0"])
    assert result.text == f"vsock {EPERM}\ninet worked\n"


async def test_privileges(box: Box, user: str) -> None:
    status = await box.exec("cat /proc/self/status", user=user)
    fields = dict(line.split(":\t", 1) for line in status.text.splitlines())
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert int(fields["CapBnd"], 16) == CAPABILITIES
    assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == (CAPABILITIES if user == "root" else 0)
    assert int(fields["CapInh"], 16) == int(fields["CapAmb"], 16) == 0
    limits = await box.exec("ulimit -c; ulimit -Hc", user=user)
    assert limits.text == "0\n0\n"


async def test_a_setuid_program_gains_nothing(box: Box) -> None:
    await box.exec("cp /usr/bin/id /bin/suid-id; cp /bin/cat /bin/suid-cat; chmod 4755 /bin/suid-id /bin/suid-cat")
    assert (await box.exec("suid-id -u", user="nobody")).text == "65534\n"
    assert not (await box.exec("suid-cat /etc/shadow", user="nobody")).ok
    assert not (await box.exec("setcap cap_dac_override+ep /bin/cat && cat /etc/shadow", user="nobody")).ok


async def keeper_of_sleep(box: Box) -> str:
    """The pid of the process above `sleep`, once both have become what they are called."""
    above = "for name in $(grep -l ^sleep /proc/[0-9]*/comm); do cut -d' ' -f4 ${name%comm}stat; done"
    async with asyncio.timeout(60):
        while True:
            for pid in (await box.exec(above, user="0")).text.split():
                if (await box.exec(f"cat /proc/{pid}/comm")).text.startswith("keeper "):
                    return pid


async def test_the_first_process_cannot_be_traced(box: Box, user: str) -> None:
    async with await box.open(["sleep", "1000"], user="0"):
        traced = await box.exec(["perl", "-e", TRACE, str(number("ptrace")), "1"], user=user)
        assert traced.text == str(EPERM)
        keeper = await keeper_of_sleep(box)
        assert (await box.exec(["perl", "-e", TRACE, str(number("ptrace")), keeper], user=user)).text == str(EPERM)
        for name in ("fd/0", "environ", "maps", "mem"):
            assert not (await box.exec(f"readlink /proc/{keeper}/{name} || cat /proc/{keeper}/{name}", user=user)).ok


@pytest.mark.parametrize(
    ("kind", "major", "minor"), [("b", 8, 0), ("b", 254, 0), ("b", 259, 0), ("c", 1, 1), ("c", 1, 2), ("c", 10, 229)]
)
async def test_devices_made_inside_are_only_names(box: Box, kind: str, major: int, minor: int) -> None:
    for place in ("/node", "/tmp/node", "/dev/node", "/dev/shm/node", "/var/tmp/node"):
        result = await box.exec(f"mknod {place} {kind} {major} {minor} && head -c 1 {place}", user="0")
        assert not result.ok
        assert b"Permission denied" in result.stderr, result


async def test_devices_of_the_host_keep_their_modes(box: Box) -> None:
    before = [stat.S_IMODE(os.stat(f"/dev/{name}").st_mode) for name in ("null", "zero", "tty")]  # noqa: PTH116
    await box.exec(
        "chmod 000 /dev/null /dev/zero /dev/tty; chown 1:1 /dev/null; rm -f /dev/null; mv /dev/zero /dev/one"
    )
    after = [stat.S_IMODE(os.stat(f"/dev/{name}").st_mode) for name in ("null", "zero", "tty")]  # noqa: PTH116
    assert after == before
    assert (await box.exec("echo x > /dev/null && head -c 3 /dev/zero | wc -c")).text == "3\n"


async def test_the_dev_of_one_is_not_the_dev_of_another(box: Box, engine: Engine, spec: Callable[..., BoxSpec]) -> None:
    other = await engine.start_box(spec())
    await box.exec("echo x > /dev/mine; echo x > /dev/shm/mine; echo x > /etc/hosts")
    assert not (await other.exec("ls /dev/mine || ls /dev/shm/mine || grep x /etc/hosts")).ok
    await other.stop()


@pytest.mark.parametrize(
    "script",
    [
        "echo 1 > /proc/sys/kernel/core_pattern",
        "echo x > /proc/sys/kernel/hostname",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "echo b > /proc/sysrq-trigger",
        "echo 0 > /sys/kernel/mm/transparent_hugepage/enabled",
        "echo x > /sys/kernel/uevent_helper",
        "mkdir /sys/fs/cgroup/x",
        "mkdir /tmp/c && mount -t cgroup -o memory x /tmp/c",
        "echo /x > /sys/fs/cgroup/release_agent",
        "echo -1000 > /proc/1/oom_score_adj",
        "mount -o remount,rw /sys",
        "mount --bind /proc/1/root /mnt",
        "umount /proc/sys || umount -l /proc",
        "hostname other",
        "chroot /proc/1/root /bin/true",
        "nsenter -t 1 -m true",
        "unshare -U true",
        "unshare -m true",
        "dmesg",
    ],
)
async def test_the_kernel_is_not_touched(box: Box, user: str, script: str) -> None:
    assert not (await box.exec(script, user=user)).ok


async def test_what_of_the_kernel_is_hidden(box: Box, user: str) -> None:
    hidden = await box.exec(
        "cat /proc/kcore /proc/keys /proc/timer_list /proc/interrupts 2>/dev/null; ls /sys/firmware", user=user
    )
    assert hidden.text == ""


async def test_files_of_the_host(box: Box, user: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(secrets.token_hex(16), encoding="ascii")
    secret.chmod(0o644)
    inode = secret.stat().st_ino
    script = f"find / -xdev -inum {inode} -name secret 2>/dev/null; cat {secret} /proc/*/root{secret} 2>/dev/null"
    assert (await box.exec(script, user=user)).text == ""
    mounted = await box.exec("cat /proc/self/mountinfo", user=user)
    assert str(tmp_path) not in mounted.text
    assert str(Path.home()) not in mounted.text.replace("/root ", "")


async def test_a_root_that_was_left_stays_left(box: Box) -> None:
    """The classic way out: change the root again, while holding a folder outside of the new one."""
    escape = "mkdir -p /jail; chroot /jail /bin/true; cd /; for n in $(seq 60); do cd ..; done; ls -di / . | tr -s ' '"
    first, second = (await box.exec(["sh", "-c", escape])).text.split("\n")[:2]
    assert first.split()[0] == second.split()[0]


async def test_sockets_of_the_host(box: Box, user: str, tmp_path: Path) -> None:
    name = f"benchflow-{secrets.token_hex(8)}"
    connect = "use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, pack('S a*', AF_UNIX, NAME)) and print 'in'"
    with closing(socket.socket(socket.AF_UNIX)) as abstract, closing(socket.socket(socket.AF_UNIX)) as named:
        abstract.bind(f"\0{name}")
        named.bind(str(tmp_path / "s"))
        for server in (abstract, named):
            server.listen()
        for address in (f"\\0{name}", str(tmp_path / "s")):
            script = connect.replace("NAME", f'"{address}"')
            assert (await box.exec(["perl", "-e", script], user=user)).text == ""


async def test_signals_do_not_leave(box: Box) -> None:
    process = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        await box.exec(f"kill -9 {process.pid}; kill -9 -- -1", user="0")
        assert process.returncode is None
        os.kill(process.pid, 0)
    finally:
        process.kill()
        await process.wait()


async def test_whoever_stops_the_keeper_is_killed_with_the_rest(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "KILL_TIMEOUT", 1.0)
    result = await box.exec("kill -STOP $PPID; sleep 1000", timeout=0.5)
    assert (result.timed_out, result.exit_code) == (True, 137)
    assert (await box.exec("ls /proc | grep -c '^[0-9]'")).text.strip() in {"5", "6", "7"}


async def test_no_module_is_loaded_from_a_box(engine: Engine, spec: Callable[..., BoxSpec]) -> None:
    """What the first process would import now, it would take from the box: it cannot import anything any more."""
    planted = {
        f"{folder}/{name}": FileData(b"open('/planted', 'w').close()\n", mode=0o644)
        for folder in (os.path.dirname(os.__file__).lstrip("/"), "usr/lib/python3.12")  # noqa: PTH120
        for name in ("tarfile.py", "encodings/idna.py", "encodings/punycode.py", "pwd.py", "shutil.py")
    }
    box = await engine.start_box(spec())
    await box.put(planted, "/")
    await box.put({"x": b"y"}, "/srv", owner="nobody")
    await box.exec(["no-such-command"], user="nobody")
    await box.read("/srv/x")
    with pytest.raises(FileNotFoundError):
        await box.read("/planted")
    await box.stop()


async def test_a_hostile_passwd(box: Box) -> None:
    lines = [
        b"",
        b":",
        b"::::::",
        b"x:x:-1:0:::/",
        b"y:x:99999999999:0::/:/",
        b"\xff\xfe:x:1:1::/:/",
        b"root:x:0:0:\0:/:/",
    ]
    content = b"\n".join(
        [*lines, b"z:x:7:8::" + b"/" * 3000 + b":/", b"good:x:1234:1234::/good:/bin/sh", b"a:" * 100_000]
    )
    await box.put({"passwd": content, "group": content}, "/etc")
    assert (await box.exec("id -u; echo $HOME", user="good")).text == "1234\n/good\n"
    for name in ("x", "y", "nobody"):
        assert (await box.exec(["true"], user=name)).exit_code == 126
    await box.exec("rm /etc/passwd; mkfifo /etc/passwd")
    assert (await box.exec(["id", "-u"], user=77)).text == "77\n"
    await box.exec("rm /etc/passwd; ln -s /dev/zero /etc/passwd")
    assert (await box.exec(["id", "-u"], user=78)).text == "78\n"
    await box.exec("rm -f /etc/passwd; ln -s /proc/kmsg /etc/passwd")
    assert (await box.exec(["id", "-u"], user=79)).text == "79\n"
