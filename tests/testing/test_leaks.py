"""A detector of leaks that never fires would make every backend look good: here it has to fire."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchflow.testing import leaks as module
from benchflow.testing.leaks import footprint, leaks, settled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.testing.leaks import Footprint

TOKEN = f"leaks-{secrets.token_hex(6)}"
ID = f"box-{secrets.token_hex(6)}"


def look() -> Footprint:
    return footprint(TOKEN, {ID})


def found(before: Footprint, *, pooled: bool = True) -> list[str]:
    return leaks(before, look(), pooled=pooled)


def test_nothing_is_nothing() -> None:
    assert found(look(), pooled=False) == []


def test_a_child() -> None:
    before = look()
    child = subprocess.Popen(["sleep", "1000"])
    try:
        assert [text.split(": ")[2] for text in found(before)] == ["sleep 1000"]
    finally:
        child.kill()
        child.wait()
    assert found(before) == []


def test_a_process_that_left_its_parents_is_known_by_its_environment() -> None:
    before = look()
    script = "setsid sleep 1000 >/dev/null 2>&1 & echo $!"
    pid = int(subprocess.check_output(["sh", "-c", script], env={**os.environ, "X": f"a-{TOKEN}-b"}))
    try:
        assert [text.split()[1] for text in found(before)] == [str(pid)]
    finally:
        os.kill(pid, 9)


def test_processes_of_others_are_not_ours() -> None:
    before = look()
    pid = int(subprocess.check_output(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"]))
    try:
        assert found(before) == []
    finally:
        os.kill(pid, 9)


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.gettempdir()) / f"benchflow-{ID}"
    path.mkdir()
    yield path
    path.rmdir()


def test_a_folder(folder: Path) -> None:
    assert f"folder: {folder}" in leaks(footprint(TOKEN, set()), look(), pooled=True)


def test_a_cgroup() -> None:
    root = next((path for path in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")) if path.is_dir()), None)
    if root is None or not os.access(root, os.W_OK):
        pytest.skip("control groups cannot be made here")
    before = look()
    group = root / f"benchflow-{ID}"
    group.mkdir()
    try:
        assert found(before) == [f"cgroup: {group}"]
    finally:
        group.rmdir()


@pytest.fixture
def child_with_mounts(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A shell of ours in a mount namespace of its own, in which a mount of the host's is copied."""
    if os.geteuid() != 0:
        pytest.skip("nothing can be mounted here")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "somebody", str(theirs)], check=True)
    unshare = ["unshare", "--mount", "--propagation", "private", "sh"]
    child = subprocess.Popen(unshare, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        _say(child, "echo ready")
        yield child
    finally:
        child.communicate("exit\n")
        subprocess.run(["umount", "-q", str(theirs)], check=False)


def _say(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{line}; echo done\n")
    child.stdin.flush()
    while child.stdout.readline() != "done\n":
        pass


def test_a_mount_in_a_namespace_of_ours(child_with_mounts: subprocess.Popen[str], tmp_path: Path) -> None:
    before = look()
    (tmp_path / "ours").mkdir()
    _say(child_with_mounts, f"mount -t tmpfs ours {tmp_path}/ours")
    assert found(before) == [f"mount: {tmp_path}/ours tmpfs"]


def test_a_mount_of_others_that_goes_away_outside_is_not_left_by_us(
    child_with_mounts: subprocess.Popen[str], tmp_path: Path
) -> None:
    before = look()
    subprocess.run(["umount", str(tmp_path / "theirs")], check=True)
    assert found(before) == []


@pytest.mark.parametrize("kind", ["pipe", "file", "pair"])
def test_a_descriptor(kind: str, tmp_path: Path) -> None:
    before = look()
    if kind == "pipe":
        opened = list(os.pipe())
    elif kind == "file":
        opened = [os.open(tmp_path, os.O_RDONLY)]
    else:
        opened = [end.detach() for end in socket.socketpair()]
    try:
        assert len(found(before)) == len(opened)
    finally:
        for descriptor in opened:
            os.close(descriptor)
    assert found(before) == []


def test_a_connection_to_a_named_peer_may_be_pooled(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "engine.sock"))
        server.listen()
        before = look()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "engine.sock"))
            assert found(before) == []
            assert [text for text in found(before, pooled=False) if "engine.sock" in text]


async def test_settled_waits_for_what_is_on_its_way_out() -> None:
    answers = iter([["a"], ["a"], []])

    async def find() -> list[str]:
        return next(answers)

    assert await settled(find) == []


async def test_settled_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE_TIMEOUT", 0.1)

    async def find() -> list[str]:
        await asyncio.sleep(0)
        return ["still there"]

    assert await settled(find) == ["still there"]
