"""Assembling the root of a box around its first process, and exchanging it for a fresh one.

Everything private to a box hangs here: its own /proc (masked and read-only where container engines do it), /sys
read-only, a /dev of six harmless nodes on a file system that opens no others, and a few small files over /etc.
The root itself opens no devices either, so a node made inside is only a name.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from . import kernel

if TYPE_CHECKING:
    from .messages import BoxRequest

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DEVICE_LINKS = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
MASKED = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
)
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
DEV_BYTES = 1 << 20
SHM_BYTES = 64 << 20

NETWORK_SETTINGS = {
    "ipv4/ip_unprivileged_port_start": "0",
    # What the kernel says by itself on a device to come, it says at once or not at all: see `network_pool`.
    "ipv6/conf/default/dad_transmits": "0",
    "ipv6/conf/default/router_solicitations": "0",
    "ipv6/conf/default/force_mld_version": "1",
    "ipv6/conf/default/mldv1_unsolicited_report_interval": "1",
}
"""Settings of a network of a box's own, below /proc/sys/net."""

_INERT = kernel.ATTR_NOSUID | kernel.ATTR_NODEV | kernel.ATTR_NOEXEC
_BOX_FILES = "/dev/.benchflow"


class Root:
    """The mounts of one box to be."""

    def __init__(self, request: BoxRequest, overlay: int, mounts: list[int], *, user_namespace: bool) -> None:
        """`overlay` and `mounts` (for the request's mounts) are detached and belong to this object now."""
        self._request = request
        self._overlay = overlay
        self._mounts = mounts
        self._user_namespace = user_namespace

    def assemble(self) -> None:
        """Make the overlay the root of this mount namespace and hang everything else in it."""
        kernel.set_propagation(kernel.MS_PRIVATE)
        proc = kernel.new_mount("proc", {}, _INERT)
        sys = self._sys()
        dev, parts = self._dev()
        kernel.change_root(self._overlay)
        for handle, path in ((proc, "/proc"), (sys, "/sys"), (dev, "/dev")):
            _hang(handle, path, directory=True)
        for name, handle in parts.items():
            kernel.place(handle, f"/dev/{name}")
        if self._request["own_network"]:
            for name, value in NETWORK_SETTINGS.items():
                _set_sysctl(f"/proc/sys/net/{name}", value)
        for path in READ_ONLY:
            _make_read_only(path)
        for path in MASKED:
            _mask(path)
        for mount, handle in zip(self._request["mounts"], self._mounts, strict=True):
            _hang(handle, mount["target"], directory=stat.S_ISDIR(os.fstat(handle).st_mode))
        _lay_files(self._request["files"])
        for path in self._request["folders"]:
            os.makedirs(path, exist_ok=True)

    def _sys(self) -> int:
        if self._request["own_network"] or not self._user_namespace:
            return kernel.new_mount("sysfs", {}, _INERT | kernel.ATTR_RDONLY)
        # The kernel lets only the owner of a network namespace mount its sysfs.
        return kernel.clone_tree("/sys", attributes=_INERT | kernel.ATTR_RDONLY)

    def _dev(self) -> tuple[int, dict[str, int]]:
        dev = kernel.new_mount("tmpfs", {"mode": "0755", "size": str(DEV_BYTES)}, _INERT)
        for name in DEVICES:
            os.close(os.open(name, os.O_CREAT | os.O_CLOEXEC, dir_fd=dev))
        for name in ("pts", "shm", "mqueue"):
            os.mkdir(name, dir_fd=dev)
        for name, target in DEVICE_LINKS.items():
            os.symlink(target, name, dir_fd=dev)
        present = [name for name in DEVICES if os.path.exists(f"/dev/{name}")]
        # Read-only mounts of nodes still let the device be written, but not its mode or owner, which the host shares.
        parts = {
            name: kernel.clone_tree(f"/dev/{name}", recursive=False, attributes=kernel.ATTR_RDONLY) for name in present
        }
        quiet = kernel.ATTR_NOSUID | kernel.ATTR_NOEXEC
        parts["pts"] = kernel.new_mount("devpts", {"newinstance": None, "ptmxmode": "0666", "mode": "0620"}, quiet)
        parts["shm"] = kernel.new_mount("tmpfs", {"mode": "1777", "size": str(SHM_BYTES)}, _INERT)
        parts["mqueue"] = kernel.new_mount("mqueue", {}, _INERT)
        return dev, parts


def _lay_files(files: dict[str, str]) -> None:
    """Lay small files over the image's. They lie on a file system of their own that is mounted nowhere else."""
    os.mkdir(_BOX_FILES)
    kernel.place(kernel.new_mount("tmpfs", {"mode": "0755", "size": str(DEV_BYTES)}, _INERT), _BOX_FILES)
    for number, (path, content) in enumerate(files.items()):
        source = f"{_BOX_FILES}/{number}"
        handle = os.open(source, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        os.write(handle, content.encode())
        os.close(handle)
        _hang(kernel.clone_tree(source, recursive=False), path, directory=False)
    kernel.unmount(_BOX_FILES)
    os.rmdir(_BOX_FILES)


def exchange(overlay: int) -> None:
    """Move everything that hangs in the root of this mount namespace to `overlay` and make that the root.

    For a process that has entered the namespace of a box whose first process is the only one: open files,
    mappings and working folders would stay behind on the former root. That one is dropped, but for a descriptor that
    stays open until this process closes all it holds: forgetting what it knew takes the kernel a while, which the box
    does not have to wait for.
    """
    os.open("/", os.O_PATH | os.O_CLOEXEC)
    with open("/proc/1/mountinfo", "rb") as file:
        places = hanging_in_root(file.read())
    kernel.move(overlay, "/")
    os.fchdir(overlay)
    for place in places:
        path = f"/{place}"
        _ensure_target(place, directory=os.path.isdir(path))
        kernel.move(path, place)
    kernel.enter_root(overlay)


def hanging_in_root(mountinfo: bytes) -> list[str]:
    """The mount points directly in the root mount, relative to it, by the text of a mountinfo file."""
    rows = [line.split(b" ") for line in mountinfo.splitlines()]
    top = [row[0] for row in rows if row[4] == b"/"][-1]
    points = [unescape(row[4]) for row in rows if row[1] == top and row[4] != b"/"]
    return [os.fsdecode(point.lstrip(b"/")) for point in points]


def unescape(field: bytes) -> bytes:
    """Spaces, tabs, line ends and backslashes stand there as three octal digits."""
    head, *rest = field.split(b"\\")
    return head + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest)


def _hang(handle: int, path: str, *, directory: bool) -> None:
    _ensure_target(path, directory=directory)
    kernel.place(handle, path)


def _ensure_target(path: str, *, directory: bool) -> None:
    """Something to mount on, made in the box's own layer where the image has nothing there."""
    if os.path.exists(path):
        return
    if os.path.islink(path):
        os.unlink(path)
    if directory:
        os.makedirs(path, exist_ok=True)
        return
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _make_read_only(path: str) -> None:
    if os.path.exists(path):
        kernel.place(kernel.clone_tree(path, attributes=_INERT | kernel.ATTR_RDONLY), path)


def _mask(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if stat.S_ISDIR(mode):
        kernel.place(kernel.new_mount("tmpfs", {"size": "4k", "mode": "0555"}, _INERT | kernel.ATTR_RDONLY), path)
    else:
        kernel.place(kernel.clone_tree("/dev/null", recursive=False), path)


def _set_sysctl(path: str, value: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(value)
    except OSError:
        return
