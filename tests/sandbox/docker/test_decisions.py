"""Small decisions: exit codes, users, what an engine can do, what the container is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchflow.sandbox.base import PIDS_LIMIT, Capabilities, ImageRef, Limits, Mount, Network, SandboxSpec
from benchflow.sandbox.docker.container import create_body, new_id
from benchflow.sandbox.docker.home import unsupported
from benchflow.sandbox.docker.layers import refuse_holes
from benchflow.sandbox.docker.network import network_body
from benchflow.sandbox.docker.outcome import Look, exit_code
from benchflow.sandbox.docker.passwd import owner_ids
from benchflow.sandbox.docker.place import Init

TINI, CATATONIT, NONE = Init("/sbin/docker-init", "tini"), Init("/run/podman-init", "catatonit"), Init()


@pytest.mark.parametrize(
    ("init", "podman", "refused", "code", "stderr", "expected"),
    [
        (TINI, False, False, 7, b"", 7),
        (TINI, False, False, 127, b"[FATAL tini (9)] exec x failed: No such file or directory", 127),
        (TINI, False, True, 126, b"unable to find user x", 126),
        (NONE, False, True, 126, b'exec: "x": executable file not found in $PATH', 127),
        (CATATONIT, True, False, 1, b"ERROR (catatonit:7): failed to exec pid1: No such file or directory\n", 127),
        (CATATONIT, True, False, 1, b"ERROR (catatonit:7): failed to exec pid1: Permission denied\n", 126),
        (CATATONIT, True, False, 1, b"an error of its own", 1),
        (CATATONIT, True, False, 127, b"Error: runc: exec failed: chdir: OCI runtime attempted to invoke", 126),
        (CATATONIT, True, False, 127, b"sh: 1: x: not found", 127),
    ],
)
def test_exit_codes(init: Init, podman: bool, refused: bool, code: int, stderr: bytes, expected: int) -> None:
    look = Look(running=False, ended=True, code=code, pid=0)
    assert exit_code(look, init, podman=podman, refused=refused, stderr=stderr) == expected


def test_commands_run_under_an_adopter_of_orphans() -> None:
    assert TINI.wrap(["a", "b"]) == ["/sbin/docker-init", "-s", "--", "a", "b"]
    assert CATATONIT.wrap(["a"]) == ["/run/podman-init", "--", "a"]
    assert NONE.wrap(["a"]) == ["a"]


@pytest.mark.parametrize(
    ("owner", "ids"),
    [("root", (0, 0)), ("app", (1000, 50)), (1000, (1000, 50)), ("1000", (1000, 50)), (77, (77, 0)), ("nobody", None)],
)
def test_owners(owner: str | int, ids: tuple[int, int] | None) -> None:
    passwd = b"root:x:0:0::/root:/bin/sh\nbroken line\napp:x:1000:50::/home/app:\nodd\xff:x:x:y::\n"
    assert owner_ids(passwd, owner) == ids


def test_a_container_without_network_has_none_at_all() -> None:
    body = create_body(SandboxSpec(ImageRef("i"), network=Network("no-network")), "i", "/", {}, {})
    assert (body["NetworkDisabled"], body["HostConfig"]["NetworkMode"]) == (True, "none")
    public = create_body(SandboxSpec(ImageRef("i")), "i", "/", {}, {})
    assert "NetworkDisabled" not in public
    assert "NetworkMode" not in public["HostConfig"]


def test_sandboxes_cannot_forge_packets_to_each_other_nor_gain_privileges() -> None:
    for mode in ("public", "no-network"):
        spec = SandboxSpec(ImageRef("i"), network=Network(mode))
        host = create_body(spec, "i", "/", {}, {})["HostConfig"]
        assert host["CapDrop"] == ["NET_RAW", "MKNOD"]
        assert host["SecurityOpt"] == ["no-new-privileges"]
        assert host["PidsLimit"] == PIDS_LIMIT
        assert not host.get("Privileged")
        assert "CapAdd" not in host


def test_the_containers_own_processes_take_nothing_from_the_image() -> None:
    env = {"PATH": "/app/bin:/usr/bin", "LD_LIBRARY_PATH": "/app/lib", "MINE": "1"}
    body = create_body(SandboxSpec(ImageRef("i")), "i", "/", env, {})
    assert body["Entrypoint"][0] == "/bin/sh"
    assert "/app/bin" not in str(body["Env"])
    assert {"LD_LIBRARY_PATH=", "MINE=1"} <= set(body["Env"])
    assert not [line for line in body["Env"] if line.startswith("LD_PRELOAD")]


def test_a_snapshot_does_not_write_out_more_holes_than_there_is_room(tmp_path: Path) -> None:
    with (tmp_path / "honest").open("wb") as file:
        file.truncate(1 << 20)
    refuse_holes([str(tmp_path)])
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(shutil.disk_usage(tmp_path).free + (1 << 30))
    with pytest.raises(OSError, match="holes"):
        refuse_holes([str(tmp_path)])


def test_limits_and_mounts_are_told() -> None:
    spec = SandboxSpec(
        ImageRef("i"),
        limits=Limits(cpus=1.5, memory_mb=64, storage_mb=10, pids=9),
        mounts=(Mount(Path("/a"), "/b"), Mount(Path("/c"), "/d", writable=True)),
    )
    host = create_body(spec, "i", "/", {}, {})["HostConfig"]
    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"]) == (1_500_000_000, 64 << 20, 64 << 20)
    assert (host["PidsLimit"], host["StorageOpt"]) == (9, {"size": "10m"})
    assert [(mount["Source"], mount["ReadOnly"]) for mount in host["Mounts"]] == [("/a", True), ("/c", False)]
    assert host["SecurityOpt"] == ["no-new-privileges"]


@pytest.mark.parametrize("name", ["Task One", "ümläut", "", "x" * 200, "../../etc", "-a-"])
def test_ids_are_names_that_engines_take(name: str) -> None:
    made = new_id(name)
    assert made.startswith("bf-")
    assert len(made) < 64
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert made != new_id(name)


def test_what_an_unknown_engine_lacks_is_not_guessed() -> None:
    spec = SandboxSpec(ImageRef("i"), limits=Limits(storage_mb=1), mounts=(Mount(Path("/a"), "/b"),))
    assert unsupported(spec, None) == ""
    assert "mount" in unsupported(spec, Capabilities())
    assert "storage" in unsupported(spec, Capabilities(mounts=True, limits=frozenset({"memory"})))


def test_the_network_keeps_what_the_outside_needs_and_passes_nothing_between_sandboxes() -> None:
    mtu = "com.docker.network.driver.mtu"
    body = network_body({mtu: "1400", "com.docker.network.bridge.enable_icc": "true", "x": "y"})
    assert body["Options"][mtu] == "1400"
    assert body["Options"]["com.docker.network.bridge.enable_icc"] == "false"
    assert "x" not in body["Options"]
