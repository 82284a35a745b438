"""Boxes: layers of any number, forks in both ways, and an end without a trace."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.sandbox.local.conftest import assert_nothing_left

from benchflow.errors import SandboxError, SandboxGone, SandboxUnsupported
from benchflow.sandbox.base import Limits, Mount
from benchflow.sandbox.local import engine as engine_module
from benchflow.sandbox.local.engine import Engine

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Callable

    from benchflow.sandbox.local.box import Box
    from benchflow.sandbox.local.engine import BoxSpec, Storage

pytestmark = pytest.mark.needs("local", "rootfs")


async def shell(box: Box, script: str, *, user: str | int | None = None) -> str:
    result = await box.exec(script, user=user)
    assert result.ok, result
    return result.text


async def layer(engine: Engine, spec: BoxSpec, script: str) -> Path:
    """A layer made by running a script over others."""
    assert spec.upper is not None
    spec.upper.mkdir()
    box = await engine.start_box(spec)
    await shell(box, script)
    await box.stop()
    return spec.upper


async def test_a_given_upper_is_kept_and_is_a_layer(
    engine: Engine, spec: Callable[..., BoxSpec], tmp_path: Path
) -> None:
    script = (
        "echo new > /etc/issue && rm -rf /etc/skel && mkdir /etc/skel && echo x > /etc/skel/x && rm /etc/debian_version"
    )
    made = await layer(engine, spec(upper=tmp_path / "made"), script)
    assert sorted(os.listdir(tmp_path)) == ["made", "state"]  # noqa: PTH208
    base = spec()
    box = await engine.start_box(spec(layers=(made, *base.layers)))
    assert await shell(box, "cat /etc/issue; ls -A /etc/skel; ls /etc/debian_version || true") == "new\nx\n"
    await box.stop()


async def test_sixty_layers(engine: Engine, spec: Callable[..., BoxSpec], tmp_path: Path) -> None:
    layers = spec().layers
    for number in range(60):
        folder = tmp_path / f"a-layer-with-a-name-that-is-not-short-at-all-{number}"
        (folder / "stack").mkdir(parents=True)
        (folder / "stack" / str(number)).write_text(str(number), encoding="ascii")
        (folder / "stack" / "top").write_text(str(number), encoding="ascii")
        layers = (folder, *layers)
    box = await engine.start_box(spec(layers=layers))
    assert await shell(box, "ls /stack | wc -l; cat /stack/top") == "61\n59"
    fork = await engine.fork_box(box, name="fork")
    assert await shell(fork, "cat /stack/0 /stack/top") == "059"
    await fork.stop()
    await box.stop()


async def test_a_box_without_layers_is_empty(engine: Engine, spec: Callable[..., BoxSpec], tmp_path: Path) -> None:
    (tmp_path / "upper").mkdir()
    box = await engine.start_box(spec(layers=(), upper=tmp_path / "upper"))
    assert (await box.exec(["/bin/true"])).exit_code == 127
    await box.put({"hello": b"there"}, "/srv")
    assert await box.read("/srv/hello") == b"there"
    await box.stop()
    assert (tmp_path / "upper" / "srv" / "hello").read_bytes() == b"there"


async def test_a_fork_of_an_idle_box_copies_nothing(engine: Engine, spec: Callable[..., BoxSpec]) -> None:
    box = await engine.start_box(spec())
    await shell(box, "head -c 30000000 /dev/urandom > /big; rm -rf /etc/skel; mkdir /etc/skel; rm /etc/issue")
    for depth in range(1, 4):
        fork = await engine.fork_box(box, name="fork")
        assert len(box.stack.frozen) == len(fork.stack.frozen) == depth
        assert await shell(fork, "stat -c %s /big; ls -A /etc/skel; ls /etc/issue || true") == "30000000\n"
        assert not (fork.stack.current.upper / "big").exists()
        await shell(fork, "echo fork > /only-here; rm /big")
        assert await shell(box, f"echo {depth} > /mine; stat -c %s /big; ls /only-here || true") == "30000000\n"
        await fork.stop()
    await box.stop()


async def test_a_fork_right_after_a_command_copies_nothing(engine: Engine, spec: Callable[..., BoxSpec]) -> None:
    box = await engine.start_box(spec())
    for number in range(10):
        await shell(box, f"echo {number} > /file")
        fork = await engine.fork_box(box, name="fork")
        assert len(box.stack.frozen) == number + 1
        await fork.stop()
    await box.stop()


async def test_a_fork_leaves_the_rest_of_the_box_as_it_is(
    engine: Engine, spec: Callable[..., BoxSpec], tmp_path: Path
) -> None:
    async def greet(_reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()
        await writer.wait_closed()

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("mounted", encoding="ascii")
    box = await engine.start_box(spec(mounts=(Mount(tmp_path / "in", "/mnt/a b\\c"),)))
    listener = await box.listen(greet)
    await shell(box, "echo kept > /dev/shm/kept; echo named > /etc/hosts; mv /etc /moved; mkdir -p /etc")
    await (await engine.fork_box(box, name="fork")).stop()
    assert len(box.stack.frozen) == 1
    assert (
        await shell(box, "cat /dev/shm/kept '/mnt/a b\\c/file' /moved/hosts; echo > /dev/null")
        == "kept\nmountednamed\n"
    )
    connect = f"exec 3<>/dev/tcp/127.0.0.1/{listener.port}; cat <&3"
    assert (await box.exec(["bash", "-c", connect])).text == "hello"
    assert not (await box.exec(": >> /proc/sys/kernel/hostname")).ok
    await box.stop()


async def test_a_fork_of_a_busy_box_copies_what_was_written(engine: Engine, spec: Callable[..., BoxSpec]) -> None:
    box = await engine.start_box(spec())
    await shell(box, "echo 0 > /before")
    await (await engine.fork_box(box, name="first")).stop()
    async with await box.open(["sleep", "1000"]):
        await shell(
            box,
            """rm -rf /etc/skel && mkdir /etc/skel && echo only > /etc/skel/one && rm /etc/issue /before
            echo 1 > /a && ln /a /b && truncate -s 100M /sparse && chown 33:33 /a""",
        )
        fork = await engine.fork_box(box, name="second")
        assert len(box.stack.frozen) == 1
        listing = "ls -A /etc/skel; ls /etc/issue /before || true; stat -c '%h %u' /a; stat -c %s /sparse"
        assert await shell(fork, listing) == "one\n2 33\n104857600\n"
        assert (fork.stack.current.upper / "sparse").stat().st_blocks < 1000
        await fork.stop()
    await box.stop()


async def test_frozen_layers_do_not_pile_up_for_ever(
    engine: Engine, spec: Callable[..., BoxSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "MAX_FROZEN", 3)
    box = await engine.start_box(spec())
    for number in range(6):
        await shell(box, f"echo {number} > /file; echo x > /file{number}")
        fork = await engine.fork_box(box, name="fork")
        assert len(box.stack.frozen) <= 3
        assert await shell(fork, "cat /file; ls /file? | wc -l") == f"{number}\n{number + 1}\n"
        await fork.stop()
    await box.stop()


async def test_processes_without_a_freezer_are_stopped_for_a_fork(
    engine: Engine, spec: Callable[..., BoxSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await engine.start_box(spec())
    monkeypatch.setattr(box, "_freezer", None)
    async with await box.open("n=0; while :; do n=$((n + 1)); echo $n >> /log; done"):
        stopped = await shell(box, "sleep 1000 >/dev/null 2>&1 & kill -STOP $!; echo $!")
        while not (await box.exec("test $(wc -l < /log) -gt 50")).ok:
            pass
        fork = await engine.fork_box(box, name="fork")
        lines = (await shell(fork, "cat /log")).split()
        assert lines == [str(number) for number in range(1, len(lines) + 1)]
        before = int(await shell(box, "wc -l < /log"))
        while int(await shell(box, "wc -l < /log")) == before:
            pass
        assert (await shell(box, f"cut -d' ' -f3 /proc/{stopped.strip()}/stat")) == "T\n"
        await fork.stop()
    await box.stop()


async def test_a_box_with_a_given_upper_does_not_fork(
    engine: Engine, spec: Callable[..., BoxSpec], tmp_path: Path
) -> None:
    (tmp_path / "upper").mkdir()
    box = await engine.start_box(spec(upper=tmp_path / "upper"))
    with pytest.raises(SandboxUnsupported):
        await engine.fork_box(box, name="fork")
    await box.stop()


async def test_a_fork_of_what_is_gone(engine: Engine, spec: Callable[..., BoxSpec]) -> None:
    box = await engine.start_box(spec())
    await box.stop()
    with pytest.raises(SandboxGone):
        await engine.fork_box(box, name="fork")


async def test_storage_in_memory_is_bounded_and_shared_with_what_was_frozen(
    spec: Callable[..., BoxSpec], tmp_path: Path
) -> None:
    engine = Engine(storage="tmpfs", root=tmp_path / "state")
    box = await engine.start_box(spec(limits=Limits(storage_mb=64)))
    assert not (await box.exec("head -c 80000000 /dev/zero > /too-big")).ok
    await shell(box, "rm /too-big; head -c 40000000 /dev/zero > /fits")
    fork = await engine.fork_box(box, name="fork")
    for one in (box, fork):
        assert not (await one.exec("head -c 40000000 /dev/zero > /more")).ok
    await fork.stop()
    await box.stop()
    await engine.close()
    assert_nothing_left(engine, tmp_path / "state")


async def test_what_the_first_process_leaves_to_children_is_little(
    engine: Engine, spec: Callable[..., BoxSpec]
) -> None:
    """Commands see three descriptors, no variables but their own, and a first process that tells them nothing."""
    box = await engine.start_box(spec())
    assert await shell(box, "ls /proc/self/fd | tr '\\n' ' '") == "0 1 2 3 "
    assert (await box.exec(["env"], env={"A": "b"})).text.split() == [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/root",
        "A=b",
    ]
    assert await shell(box, "tr -d '\\0' < /proc/1/cmdline; echo; cat /proc/1/comm") == "benchflow\nbenchflow\n"
    for name in ("environ", "fd/3", "root", "cwd", "exe", "maps", "mem", "map_files"):
        assert not (await box.exec(f"cat /proc/1/{name} || readlink /proc/1/{name}")).ok, name
    await box.stop()


async def test_a_background_writer_lives_on(engine: Engine, spec: Callable[..., BoxSpec]) -> None:
    box = await engine.start_box(spec())
    result = await box.exec("(while :; do echo flood; echo 1 >> /alive; done) & sleep 0.1; echo done")
    assert result.stdout.startswith(b"flood") or result.stdout.startswith(b"done")
    before = int(await shell(box, "wc -l < /alive"))
    while int(await shell(box, "wc -l < /alive")) < before + 1000:
        pass
    await box.kill()
    assert int(await shell(box, "ls /proc | grep -c '^[0-9]'")) <= 8
    await box.stop()


async def test_the_first_process_dies(engine: Engine, spec: Callable[..., BoxSpec]) -> None:
    box = await engine.start_box(spec())
    running = asyncio.create_task(box.exec(["sleep", "1000"]))
    stream = await box.open(["cat"])
    first = box.life.first
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    for waiting in (running, stream.wait(), box.exec(["true"]), box.put({"a": b""}, "/"), box.read("/etc/passwd")):
        with pytest.raises(SandboxGone):
            await waiting
    await stream.kill()
    await box.stop()


async def test_nobody_inside_can_end_the_first_process(engine: Engine, spec: Callable[..., BoxSpec]) -> None:
    box = await engine.start_box(spec())
    await box.exec("for n in 1 2 3 9 15 17 19; do kill -$n 1; done")
    assert (await box.exec(["true"])).ok
    await box.stop()


async def test_the_helper_dies(engine: Engine, spec: Callable[..., BoxSpec]) -> None:
    """What runs goes on; the next box gets a new helper."""
    box = await engine.start_box(spec())
    helper = engine._helper
    assert helper is not None
    helper._process.kill()
    await helper._process.wait()
    assert (await box.exec(["true"])).ok
    other = await engine.start_box(spec())
    assert (await other.exec(["true"])).ok
    await other.stop()
    await box.stop()


async def test_closing_stops_what_runs(spec: Callable[..., BoxSpec], tmp_path: Path) -> None:
    engine = Engine(root=tmp_path / "state")
    boxes = [await engine.start_box(spec(limits=Limits(memory_mb=64, cpus=1))) for _ in range(3)]
    await boxes[0].exec("sleep 1000 >/dev/null 2>&1 &")
    fork = await engine.fork_box(boxes[0], name="fork")
    await engine.close()
    assert all(box.ended for box in (*boxes, fork))
    assert_nothing_left(engine, tmp_path / "state")


OWNER = """
import asyncio, sys
from pathlib import Path
from benchflow.sandbox.base import Limits, Network
from benchflow.sandbox.local.engine import BoxSpec, Engine

async def own():
    engine = Engine(root=Path(sys.argv[1]))
    spec = BoxSpec("owned", (Path(sys.argv[2]),), network=Network(sys.argv[3]), limits=Limits(memory_mb=64))
    box = await engine.start_box(spec)
    await box.exec("sleep 1000 >/dev/null 2>&1 & sleep 0.1")
    fork = await engine.fork_box(box, name="fork")
    print(engine._helper._process.pid, box.life.first.pid, fork.life.first.pid, flush=True)
    await asyncio.sleep(1000)

asyncio.run(own())
"""


def has_ended(handle: int) -> bool:
    return bool(select.select([handle], [], [], 60)[0])


@pytest.mark.parametrize("network", ["no-network", "public"])
async def test_everything_dies_with_a_killed_owner_and_is_swept(
    rootfs: Path, tmp_path: Path, spec: Callable[..., BoxSpec], network: str
) -> None:
    state = tmp_path / "state"
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, str(state), str(rootfs), network, stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdout is not None
    pids = [int(word) for word in (await owner.stdout.readline()).split()]
    assert len(pids) == 3
    handles = [os.pidfd_open(pid) for pid in pids]
    owner.kill()
    await owner.wait()
    for handle in handles:
        assert await asyncio.to_thread(has_ended, handle)
        os.close(handle)
    assert os.listdir(state / "uppers")  # noqa: PTH208
    engine = Engine(root=state)
    await (await engine.start_box(spec())).stop()
    await engine.close()
    assert_nothing_left(engine, state)
    assert [path for path in engine.means.cgroups.groups() if f"-{owner.pid}-" in path.name] == []


async def test_what_cannot_start_says_why(engine: Engine, spec: Callable[..., BoxSpec], tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="no-such-layer"):
        await engine.start_box(spec(layers=(tmp_path / "no-such-layer",)))


async def test_a_thousand_in_a_row_grow_nothing(engine: Engine, spec: Callable[..., BoxSpec]) -> None:
    """Fifty stand for them here: descriptors of both processes, and what is on the disk."""
    box = await engine.start_box(spec())
    await box.stop()
    helper = engine._helper
    assert helper is not None

    def descriptors() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{helper._process.pid}/fd"))  # noqa: PTH208

    before = descriptors()
    for _ in range(50):
        box = await engine.start_box(spec())
        await box.exec(["true"])
        await box.stop()
    assert descriptors() == before


async def test_the_first_process_of_a_fork_holds_nothing_of_the_original(
    engine: Engine, spec: Callable[..., BoxSpec]
) -> None:
    box = await engine.start_box(spec())
    fork = await engine.fork_box(box, name="fork")
    plain = await engine.start_box(spec())
    assert fork.stack.frozen
    assert holdings(fork) == holdings(box) == holdings(plain)
    for one in (box, fork):
        assert await shell(one, "cut -d' ' -f5 /proc/self/mountinfo | sort") == await shell(
            plain, "cut -d' ' -f5 /proc/self/mountinfo | sort"
        )
    for one in (box, fork, plain):
        await one.stop()


async def test_the_former_root_of_a_forked_box_is_mounted_nowhere(engine: Engine, spec: Callable[..., BoxSpec]) -> None:
    box = await engine.start_box(spec())
    (former,) = overlays(first_pid(box))
    fork = await engine.fork_box(box, name="fork")
    assert box.stack.frozen
    assert engine._helper is not None
    assert len({former, *overlays(first_pid(box)), *overlays(first_pid(fork))}) == 3
    assert former not in overlays(engine._helper._process.pid)
    await fork.stop()
    await box.stop()


@pytest.mark.parametrize("storage", ["disk", "tmpfs"])
@pytest.mark.parametrize("act", ["cancel", "stop the original", "kill the original", "kill the helper"])
async def test_a_fork_that_is_disturbed_at_any_moment(
    engine: Engine, spec: Callable[..., BoxSpec], monkeypatch: pytest.MonkeyPatch, storage: Storage, act: str
) -> None:
    """The original has all its files and goes on, or is gone; nothing is left in either case."""
    monkeypatch.setattr(engine, "_storage", storage)
    descriptors = 0
    for moment in range(8):
        box = await engine.start_box(spec())
        await shell(box, "echo kept > /file")
        forking = asyncio.create_task(engine.fork_box(box, name="fork"))
        await asyncio.wait([forking], timeout=moment * 0.003)
        stopping = await disturb(engine, box, forking, act)
        try:
            fork = await forking
        except (asyncio.CancelledError, SandboxError):
            pass
        else:
            assert await shell(fork, "cat /file") == "kept\n"
            await fork.stop()
        try:
            assert await shell(box, "cat /file; echo more >> /file; cat /file") == "kept\nkept\nmore\n"
            assert act != "stop the original"
        except SandboxGone:
            assert act != "cancel"
        await asyncio.gather(box.stop(), *stopping)
        assert_nothing_left(engine, engine.state.root)
        await engine.forget_networks()
        held = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        assert held == (descriptors or held)
        descriptors = held


async def disturb(engine: Engine, box: Box, forking: asyncio.Task[Box], act: str) -> list[asyncio.Task[None]]:
    """What goes on afterwards, to be waited for."""
    match act:
        case "cancel":
            forking.cancel()
        case "stop the original":
            return [asyncio.create_task(box.stop())]
        case "kill the original":
            os.kill(first_pid(box), signal.SIGKILL)
        case _:
            assert engine._helper is not None
            with suppress(ProcessLookupError):
                engine._helper._process.kill()
            await engine._helper._process.wait()
    return []


async def test_a_fork_that_fails_after_the_exchange(
    engine: Engine, spec: Callable[..., BoxSpec], tmp_path: Path
) -> None:
    """The original goes on, on its fresh layer, and can be forked again."""
    (tmp_path / "in").mkdir()
    box = await engine.start_box(spec(mounts=(Mount(tmp_path / "in", "/mnt"),)))
    await shell(box, "echo kept > /file")
    (tmp_path / "in").rename(tmp_path / "away")
    with pytest.raises(SandboxError, match=f"{tmp_path}/in"):
        await engine.fork_box(box, name="fork")
    assert len(box.stack.frozen) == 1
    assert await shell(box, "cat /file; rm /file; echo new > /file; cat /file; ls /mnt") == "kept\nnew\n"
    (tmp_path / "away").rename(tmp_path / "in")
    fork = await engine.fork_box(box, name="fork")
    assert await shell(fork, "cat /file") == "new\n"
    await fork.stop()
    await box.stop()


def first_pid(box: Box) -> int:
    assert box.life.first is not None
    return box.life.first.pid


def holdings(box: Box) -> list[str]:
    """What the descriptors of its first process lead to, and its root and working folder."""
    folder = Path(f"/proc/{first_pid(box)}")
    links = [*sorted((folder / "fd").iterdir(), key=lambda path: int(path.name)), folder / "root", folder / "cwd"]
    return [str(link.readlink()).partition(":")[0] for link in links]


def overlays(pid: int) -> list[str]:
    """The numbers of the overlays in the mount namespace of a process."""
    rows = Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8").splitlines()
    return [row.split(" ")[2] for row in rows if " - overlay " in row]
