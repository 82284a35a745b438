"""Control groups: where this process is in them, in every layout there is, and what is written into them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchflow.sandbox.base import Limits
from benchflow.sandbox.local import cgroups
from benchflow.sandbox.local.cgroups import Cgroups, Hierarchies, limit_files, locate
from benchflow.sandbox.local.guest import cgroups as guest

if TYPE_CHECKING:
    from benchflow.sandbox.local.cgroups import Limit

UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = """\
30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 23 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
34 1 254:0 / / rw - ext4 /dev/vda rw
"""
CONTAINER = "30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n"


def test_unified() -> None:
    found = locate(UNIFIED, "0::/user.slice/session-1.scope\n")
    top = Path("/sys/fs/cgroup")
    assert found == Hierarchies(top / "user.slice/session-1.scope", top, {})


def test_hybrid() -> None:
    membership = "9:name=systemd:/\n4:memory:/process_api/9e20\n2:cpu,cpuacct:/a:b\n0::/\n"
    found = locate(HYBRID, membership)
    assert found.unified == Path("/sys/fs/cgroup/unified")
    assert found.old["memory"] == Path("/sys/fs/cgroup/memory/process_api/9e20")
    assert found.old["cpu"] == found.old["cpuacct"] == Path("/sys/fs/cgroup/cpu,cpuacct/a:b")


def test_a_container_sees_its_own_part() -> None:
    assert locate(CONTAINER, "0::/docker/abc/inner\n").unified == Path("/sys/fs/cgroup/inner")


def test_none() -> None:
    assert locate("34 1 254:0 / / rw - ext4 /dev/vda rw\n", "") == Hierarchies()
    nothing = Cgroups(Hierarchies())
    assert (nothing.limits, nothing.freezes, nothing.plan("x", Limits(memory_mb=1))) == (frozenset(), False, [])


@pytest.mark.parametrize(
    ("limit", "limits", "unified", "old"),
    [
        ("pids", Limits(pids=7), {"pids.max": "7"}, {"pids.max": "7"}),
        ("pids", Limits(pids=None), {}, {}),
        (
            "cpus",
            Limits(cpus=1.5),
            {"cpu.max": "150000 100000"},
            {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"},
        ),
        (
            "cpus",
            Limits(cpus=0.001),
            {"cpu.max": "1000 100000"},
            {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "1000"},
        ),
        ("cpus", Limits(), {}, {}),
        (
            "memory",
            Limits(memory_mb=2),
            {"memory.max": "2097152", "memory.swap.max": "0"},
            {"memory.limit_in_bytes": "2097152", "memory.memsw.limit_in_bytes": "2097152"},
        ),
    ],
)
def test_files(limit: Limit, limits: Limits, unified: dict[str, str], old: dict[str, str]) -> None:
    assert limit_files(limit, limits, unified=True) == unified
    assert limit_files(limit, limits, unified=False) == old


def fake_group(path: Path, controllers: str, passed_on: str = "", *, refuses: bool = False) -> None:
    """What matters of a unified group, as plain files; a folder in place of a file refuses to be written."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.procs").touch()
    (path / "cgroup.controllers").write_text(controllers, encoding="ascii")
    if refuses:
        (path / "cgroup.subtree_control").mkdir()
    else:
        (path / "cgroup.subtree_control").write_text(passed_on, encoding="ascii")


def test_a_group_that_cannot_pass_controllers_on_is_passed_over(tmp_path: Path) -> None:
    fake_group(tmp_path, "cpu memory pids io", "cpu memory pids io")
    fake_group(tmp_path / "slice", "cpu memory pids", "cpu memory pids")
    fake_group(tmp_path / "slice" / "mine", "cpu memory pids", refuses=True)
    found = Cgroups(Hierarchies(tmp_path / "slice" / "mine", tmp_path, {}))
    assert found.limits == {"cpus", "memory", "pids"}
    plan = found.plan("box", Limits(cpus=1, memory_mb=1))
    assert [group["path"] for group in plan] == [str(tmp_path / "slice" / "benchflow-box")]
    assert set(plan[0]["settings"]) == {"cpu.max", "memory.max", "memory.swap.max", "pids.max"}


@pytest.mark.needs("local")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may always make control groups")
def test_freezing_here() -> None:
    here = Cgroups.here()
    if not here.freezes:
        pytest.skip("no control groups can be made here")
    (group, *others) = here.plan(f"0-0-test-{os.getpid()}", Limits(pids=None))
    assert others == []
    pid = os.fork()
    if pid == 0:
        guest.enter([group])
        while True:
            os.getppid()
    try:
        while not Path(group["path"]).exists() or str(pid) not in _members(group["path"]):
            os.sched_yield()
        cgroups.freeze(group["path"])
        ticks = _ticks(pid)
        for _ in range(20):
            os.sched_yield()
        assert _ticks(pid) == ticks
        cgroups.thaw(group["path"])
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        guest.remove(group["path"])
    assert not Path(group["path"]).exists()
    guest.remove(group["path"])


def _members(path: str) -> list[str]:
    return Path(path, "cgroup.procs").read_text(encoding="ascii").split()


def _ticks(pid: int) -> bytes:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[11]
