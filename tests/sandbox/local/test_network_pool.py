"""Networks that go from box to box: only those that nobody used, and none that lost its way out."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchflow.sandbox.local import network

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchflow.sandbox.local.engine import Box, BoxSpec, Engine

MODES = ["no-network", pytest.param("public", marks=pytest.mark.skipif(bool(network.missing()), reason="no pasta"))]

LABEL = "20010db8000000000000000000005ec7"


async def namespace(box: Box) -> str:
    return (await box.exec(["readlink", "/proc/self/ns/net"])).text


@pytest.mark.parametrize("mode", MODES)
async def test_a_network_that_nobody_used_serves_again(engine: Engine, spec: Callable[..., BoxSpec], mode: str) -> None:
    seen = []
    for _ in range(3):
        box = await engine.start_box(spec(network=mode))
        seen.append(await namespace(box))
        await box.stop()
    assert len(set(seen)) == 1


USES = {
    "a datagram": "socket(S, 2, 2, 0); send(S, 'x', 0, pack_sockaddr_in(9, inet_aton('127.0.0.1'))) or die $!",
    "a connection": "socket(S, 2, 1, 0); connect(S, pack_sockaddr_in(9, inet_aton('127.0.0.1')))",
    "a datagram in IPv6": "socket(S, 10, 2, 0); send(S, 'x', 0, pack_sockaddr_in6(9, inet_pton(10, '::1'))) or die $!",
    "an attempt": "socket(S, 2, 2, 0); send(S, 'x', 0, pack_sockaddr_in(9, inet_aton('192.0.2.1')))",
    "a report that looks like the kernel's own": """
        socket(S, 10, 3, 58) or die $!;
        send(S, pack('C C n N', 143, 0, 0, 0), 0, pack_sockaddr_in6(0, inet_pton(10, '::1'))) or die $!""",
    "a frame": """
        socket(S, 17, 3, 0) or die $!;
        send(S, 'x' x 60, 0, pack('S n l S C C a8', 17, 0x88b5, 1, 0, 0, 6, '')) or die $!""",
    "a label of a flow, without a packet": f"""
        socket(S, 10, 2, 0) or die $!;
        setsockopt(S, 41, 32, pack('H32 N C C S S S L', '{LABEL}', 4321, 0, 255, 1, 60, 60, 0)) or die $!""",
}
"""Programs that leave something in a network that the next box could see."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("use", USES)
async def test_one_that_was_used_does_not(engine: Engine, spec: Callable[..., BoxSpec], mode: str, use: str) -> None:
    first = await engine.start_box(spec(network=mode))
    assert first.life.first is not None
    used = os.open(f"/proc/{first.life.first.pid}/ns/net", os.O_RDONLY)  # held, so that its number is not given anew
    result = await first.exec(["perl", "-MSocket=:all", "-e", USES[use]])
    assert result.ok or use == "a connection", result
    await first.stop()
    second = await engine.start_box(spec(network=mode))
    assert await namespace(second) != f"net:[{os.fstat(used).st_ino}]\n"
    assert LABEL not in (await second.exec(["cat", "/proc/net/ip6_flowlabel"])).text
    os.close(used)
    await second.stop()


IN_FLIGHT = """
socket(S, 1, 2, 0); bind(S, pack_sockaddr_un("\\0left")) or die $!;
socket(T, 2, 1, 0); bind(T, pack_sockaddr_in(7777, inet_aton('127.0.0.1'))) or die $!; listen(T, 1);
socketpair(A, B, 1, 1, 0);
for $passed (*A, *B, *S, *T) {
    $control = pack('Q l l l x4', 20, 1, 1, fileno($passed));
    $data = 'x'; $part = pack('P Q', $data, 1);
    syscall(46, fileno(A), pack('P L x4 P Q P Q l x4', '', 0, $part, 1, $control, 24, 0), 0) == 1 or die $!;
}
"""
"""A name and a listening socket that nobody holds, but for messages that nobody can ever receive."""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls sendmsg by its number")
async def test_sockets_that_only_messages_hold_are_not_handed_on(engine: Engine, spec: Callable[..., BoxSpec]) -> None:
    for _ in range(3):
        box = await engine.start_box(spec())
        names = (await box.exec(["cat", "/proc/net/unix", "/proc/net/tcp"])).text
        assert "@left" not in names
        assert ":1E61 " not in names
        result = await box.exec(["perl", "-MSocket=:all", "-e", IN_FLIGHT])
        assert result.ok, result
        await box.stop()


async def test_a_network_that_never_came_up_serves_nobody(
    engine: Engine, spec: Callable[..., BoxSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start of its box was given up while its way out was being made, which ends with it."""
    monkeypatch.setattr(engine, "_way_out", lambda _wanted: ("sleep", "1000"))
    starting = asyncio.create_task(engine.start_box(spec()))
    while not any(box.network and box.network._escort for box in engine._boxes):
        await asyncio.wait([starting], timeout=0.01)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert engine._networks._idle == []


async def test_starts_given_up_at_any_moment_leave_no_half_network(
    engine: Engine, spec: Callable[..., BoxSpec]
) -> None:
    if network.missing():
        pytest.skip(network.missing())
    for moment in range(8):
        starting = asyncio.create_task(engine.start_box(spec(network="public")))
        await asyncio.wait([starting], timeout=moment * 0.006)
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await (await starting).stop()
        box = await engine.start_box(spec(network="public"))
        assert (await box.exec(["grep", "-q", "eth0", "/proc/net/route"])).ok
        await box.stop()
        await engine.forget_networks()


async def test_boxes_that_start_together_find_kept_networks_spoilt(
    engine: Engine, spec: Callable[..., BoxSpec]
) -> None:
    if network.missing():
        pytest.skip(network.missing())
    boxes = [await engine.start_box(spec(network="public")) for _ in range(3)]
    namespaces = [os.open(f"/proc/{box.life.first.pid}/ns/net", os.O_RDONLY) for box in boxes if box.life.first]
    for box in boxes:
        await box.stop()
    for one in namespaces:
        await asyncio.to_thread(use, one)
        os.close(one)
    for box in await asyncio.gather(*(engine.start_box(spec(network="public")) for _ in range(3))):
        assert (await box.exec(["true"])).ok
        await box.stop()


def use(namespace: int) -> None:
    """Send something in a network. For a thread: the namespace is its own."""
    os.unshare(os.CLONE_FS)
    os.setns(namespace, os.CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ("127.0.0.1", 9))


async def test_networks_with_and_without_a_way_out_are_not_mixed_up(
    engine: Engine, spec: Callable[..., BoxSpec]
) -> None:
    if network.missing():
        pytest.skip(network.missing())
    for mode, devices in (("public", 2), ("no-network", 1), ("public", 2), ("no-network", 1)):
        box = await engine.start_box(spec(network=mode))
        assert len((await box.exec(["ls", "/sys/class/net"])).text.split()) == devices
        await box.stop()


async def test_a_network_whose_program_was_killed_serves_nobody(engine: Engine, spec: Callable[..., BoxSpec]) -> None:
    if network.missing():
        pytest.skip(network.missing())
    box = await engine.start_box(spec(network="public"))
    await box.stop()
    assert engine._helper is not None
    (program,) = way_outs(engine._helper._process.pid)
    handle = os.pidfd_open(program)
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    await asyncio.to_thread(select.select, [handle], [], [])
    os.close(handle)
    box = await engine.start_box(spec(network="public"))
    assert len((await box.exec(["ls", "/sys/class/net"])).text.split()) == 2
    assert way_outs(engine._helper._process.pid)
    await box.stop()


def way_outs(helper: int) -> list[int]:
    """The programs that give networks a way out: each is held by a child of the helper process."""
    holders = children(helper)
    return [
        pid for holder in holders for pid in children(holder) if Path(f"/proc/{pid}/comm").read_text().startswith("pas")
    ]


def children(parent: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(folder.name))
    return found
