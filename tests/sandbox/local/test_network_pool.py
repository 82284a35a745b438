"""Networks that go from box to box: only those that nobody used, and none that lost its way out."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.sandbox.local import network
from benchflow.sandbox.local.network_pool import KERNELS_OWN, unused

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchflow.sandbox.local.engine import Box, BoxSpec, Engine

MODES = ["no-network", pytest.param("public", marks=pytest.mark.skipif(bool(network.missing()), reason="no pasta"))]

HEAD = "Inter-|   Receive  |  Transmit\n face |bytes packets\n"


def counters(loopback: int = 0, device: int = 0, ip4: int = 0, ip6: int = 0, **types: int) -> tuple[str, str, str]:
    devices = "".join(f" {name}: 9 9 0 0 0 0 0 0 9 {sent} 0 0\n" for name, sent in (("lo", loopback), ("eth0", device)))
    messages = "".join(f"Icmp6Out{kind}\t{count}\n" for kind, count in types.items())
    return HEAD + devices, f"Ip: Forwarding OutRequests\nIp: 1 {ip4}\nTcp: X\n", f"Ip6OutRequests \t{ip6}\n{messages}"


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(KERNELS_OWN), st.integers(0, 5)), st.integers(0, 9))
def test_what_a_kernel_sends_by_itself_is_no_use(kinds: dict[int, int], lost: int) -> None:
    own = sum(kinds.values())
    types = {f"Type{kind}": count for kind, count in kinds.items()}
    assert unused(*counters(device=max(own - lost, 0), ip6=own, **types))
    assert unused(*counters()[:2])


@pytest.mark.parametrize(
    "sent",
    [
        {"ip4": 1},
        {"ip6": 1},
        {"ip6": 1, "Type128": 1},
        {"ip6": 2, "Type135": 1},
        {"device": 1},
        {"loopback": 1},
        {"device": 2, "ip6": 1, "Type143": 1},
    ],
)
def test_anything_else_is_one(sent: dict[str, int]) -> None:
    assert not unused(*counters(**sent))


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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "use",
    [
        "exec 3>/dev/udp/127.0.0.1/9; echo x >&3",
        "exec 3<>/dev/tcp/127.0.0.1/9",
        "exec 3>/dev/udp/::1/9; echo x >&3",
    ],
)
async def test_one_that_was_used_does_not(engine: Engine, spec: Callable[..., BoxSpec], mode: str, use: str) -> None:
    first = await engine.start_box(spec(network=mode))
    assert first.life.first is not None
    used = os.open(f"/proc/{first.life.first.pid}/ns/net", os.O_RDONLY)  # held, so that its number is not given anew
    await first.exec(["bash", "-c", use])
    await first.stop()
    second = await engine.start_box(spec(network=mode))
    assert await namespace(second) != f"net:[{os.fstat(used).st_ino}]\n"
    os.close(used)
    await second.stop()


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
