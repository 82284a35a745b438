"""The small parts of the host's side: output, messages, records, who we are, names and addresses, the doctor."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.sandbox.base import Network
from benchflow.sandbox.local import identity, network
from benchflow.sandbox.local.channel import Channel
from benchflow.sandbox.local.guest import wire
from benchflow.sandbox.local.guest.root import hanging_in_root
from benchflow.sandbox.local.output import CHUNK, Output
from benchflow.sandbox.local.probe import probe
from benchflow.sandbox.local.spec import new_id, slug
from benchflow.sandbox.local.state import Process, Record, State
from benchflow.sandbox.local.uppers import Stack, Upper

if TYPE_CHECKING:
    from pathlib import Path


@settings(deadline=None)
@given(limit=st.integers(0, 50), chunks=st.lists(st.binary(max_size=40)))
def test_output_keeps_head_and_tail(limit: int, chunks: list[bytes]) -> None:
    output = Output(limit)
    for chunk in chunks:
        output.add(chunk)
    whole = b"".join(chunks)
    kept = output.kept
    assert len(kept) == min(limit, len(whole))
    assert len(kept) + output.dropped == len(whole)
    head = (limit + 1) // 2
    assert kept == (whole if len(whole) <= limit else whole[:head] + whole[len(whole) - limit // 2 :])


def test_output_holds_little_more_than_it_keeps() -> None:
    output = Output(1000)
    for _ in range(100):
        output.add(bytes(CHUNK))
        assert len(output._tail) <= 2 * CHUNK + 2000
    assert output.dropped == 100 * CHUNK - 1000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@settings(deadline=None)
@given(
    message=st.dictionaries(st.text(), JSON, max_size=4), count=st.integers(0, 3), padding=st.sampled_from([0, 100_000])
)
def test_messages_arrive_whole(message: dict[str, object], count: int, padding: int) -> None:
    near, far = wire.pair()
    pipes = [os.pipe() for _ in range(count)]
    sent = {**message, "padding": "\udcff" * padding}
    with near, far:
        wire.send(near, sent, [read for read, _ in pipes])
        received, descriptors = wire.receive(far)
        assert received == sent
        assert len(descriptors) == count
        for (_, write), descriptor in zip(pipes, descriptors, strict=True):
            os.write(write, b"x")
            assert os.read(descriptor, 1) == b"x"
        near.close()
        assert wire.receive(far) == (None, [])
    wire.close_all([*descriptors, *(end for pipe in pipes for end in pipe)])


async def test_a_channel_waits_for_room() -> None:
    channel, far = Channel.pair()

    async def fill() -> None:
        for number in range(2000):
            await channel.send({"number": number, "padding": "x" * 1000})

    far.setblocking(False)
    other = Channel(far)
    async with asyncio.TaskGroup() as group:
        group.create_task(fill())
        for number in range(2000):
            message, _ = await other.receive()
            assert message is not None
            assert message["number"] == number
    states = [other.ended]
    channel.close()
    states.append(other.ended)
    assert await other.receive() == (None, [])
    other.close()
    assert [*states, other.ended] == [False, True, True]


def test_records_and_whose_they_are(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.prepare()
    me = Process.current()
    record = Record("box-1", "job", "rollout", 1.5, me, Process(1, 2), ("/a", "/b"))
    state.write(record)
    (tmp_path / "boxes" / "broken.json").write_text("{", encoding="ascii")
    (tmp_path / "boxes" / "odd.json").write_text('{"id": 1}', encoding="ascii")
    assert list(state.records()) == [record]
    assert me.alive
    assert not Process(me.pid, me.start + 1).alive
    assert Process.from_tag(f"{me.tag}-0-1") == me
    assert Process.from_tag("trial-12") is None
    homes = [state.new_home(), tmp_path / "uppers" / "4194304-1-0-0"]
    for home in homes:
        home.mkdir()
    assert state.stray_homes() == [homes[1]]
    assert state.stray_homes(older_than=1000) == []
    state.remove("box-1")
    state.remove("box-1")
    assert list(state.records()) == []


def test_layers_go_with_their_last_user(tmp_path: Path) -> None:
    stack = Stack(Upper.new(tmp_path / "0"), [], (tmp_path / "image",))
    stack.freeze(Upper.new(tmp_path / "1"))
    fork = stack.branch(Upper.new(tmp_path / "2"))
    assert fork.request()["layers"] == [str(tmp_path / "0" / "upper"), str(tmp_path / "image")]
    assert stack.release() == [tmp_path / "1"]
    assert stack.release() == []
    assert fork.release() == [tmp_path / "2", tmp_path / "0"]


def test_names() -> None:
    assert slug("My Task/№ 1__x") == "my-task-1-x"
    assert slug("###") == "box"
    assert len(slug("x" * 100)) == 40
    assert new_id("a") != new_id("a")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", None),
        ("someone:1:65536\n", None),
        ("me:100000:1000\nme:200000:70000\n", (200000, 65536)),
        ("4242:300000:65536\n", (300000, 65536)),
        ("me:x:65536\nme\n::\n", None),
    ],
)
def test_subordinate_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: tuple[int, int] | None
) -> None:
    (tmp_path / "subuid").write_text(text, encoding="utf-8")
    monkeypatch.setattr(identity, "user_name", lambda _: "me")
    assert identity.subordinate(tmp_path / "subuid", uid=4242) == found
    assert identity.subordinate(tmp_path / "missing", uid=4242) is None


def test_a_resolver_on_the_hosts_loopback_is_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "search example.org\nnameserver 127.0.0.53\noptions edns0\n"
    monkeypatch.setattr(network, "host_resolvers", lambda: text)
    assert "--dns-forward" in network.pasta_command(text)
    own = network.box_files(Network("public"), "box", own=True)["/etc/resolv.conf"]
    assert own == f"nameserver {network.FORWARDED_RESOLVER}\nsearch example.org\noptions edns0\n"
    assert network.box_files(Network("public"), "box", own=False)["/etc/resolv.conf"] == text
    assert network.box_files(Network("no-network"), "box", own=True)["/etc/resolv.conf"] == ""
    assert "--dns-forward" not in network.pasta_command("nameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver\n")


def test_mounts_that_hang_in_the_root() -> None:
    text = rb"""88 89 0:39 / / rw - overlay none rw
138 88 0:42 / /proc rw - proc none rw
139 138 0:42 /sys /proc/sys ro - proc none rw
140 88 254:0 /x /mnt/a\040b\134c ro - ext4 /dev/vda rw
"""
    assert hanging_in_root(text) == ["proc", "mnt/a b\\c"]


def test_the_doctor_names_a_fix_for_whatever_is_missing() -> None:
    found = probe()
    assert {"kernel", "seccomp", "overlayfs", "limits", "network", "place for sandboxes"} <= {c.name for c in found}
    assert all(check.detail for check in found)
    assert all(check.fix for check in found if not check.ok)
    assert not any(check.fix for check in found if check.ok)
