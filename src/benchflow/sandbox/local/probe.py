"""What the local backend finds on this machine, and the command that fixes what it lacks."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from benchflow.sandbox.local import identity, network
from benchflow.sandbox.local.cgroups import Cgroups
from benchflow.sandbox.local.means import STORAGE_VARIABLE
from benchflow.sandbox.local.seccomp import SeccompUnavailable, compiled
from benchflow.sandbox.local.state import STATE_VARIABLE, default_root
from benchflow.sandbox.probe import Check

MIN_KERNEL = (5, 12)
"""Detached mounts whose attributes can be set, and overlayfs for ordinary users."""

TRIAL_TIMEOUT = 30.0
"""Seconds that trying a namespace may take."""

_UNSHARE = "import os; os.unshare(0x10000000); open('/proc/self/uid_map', 'w').write(f'0 {os.environ[\"UID\"]} 1')"


def probe() -> list[Check]:
    """Each thing that sandboxes need or gain from; see `Check`. Tries rather than guesses. Blocks for a moment."""
    who = identity.current()
    found = [_kernel(), _seccomp(), _overlay()]
    if who.kind == "root":
        found.append(Check("user", ok=True, detail="root: sandboxes have every user an image has"))
    else:
        found += [_user_namespaces(), _subordinate(who)]
    return [*found, _control_groups(), _network(), _place()]


def _kernel() -> Check:
    release = platform.release()
    numbers = re.match(r"(\d+)\.(\d+)", release)
    recent = sys.platform == "linux" and numbers is not None and (int(numbers[1]), int(numbers[2])) >= MIN_KERNEL
    needed = ".".join(map(str, MIN_KERNEL))
    return Check("kernel", recent, f"{platform.system()} {release}", "" if recent else f"use Linux {needed} or later")


def _seccomp() -> Check:
    try:
        compiled()
    except SeccompUnavailable as error:
        return Check("seccomp", ok=False, detail=str(error), fix="apt-get install libseccomp2")
    return Check("seccomp", ok=True, detail="system calls are filtered")


def _overlay() -> Check:
    known = "overlay" in Path("/proc/filesystems").read_text(encoding="ascii").split()
    if not known and os.geteuid() == 0 and shutil.which("modprobe"):
        subprocess.run(["modprobe", "overlay"], check=False, capture_output=True, timeout=TRIAL_TIMEOUT)
        known = "overlay" in Path("/proc/filesystems").read_text(encoding="ascii").split()
    detail = "layers can be stacked" if known else "the kernel does not offer overlayfs"
    return Check("overlayfs", known, detail, "" if known else "modprobe overlay")


def _user_namespaces() -> Check:
    trial = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _UNSHARE],
        env={"UID": str(os.getuid())},
        capture_output=True,
        check=False,
        timeout=TRIAL_TIMEOUT,
    )
    if trial.returncode == 0:
        return Check("user namespaces", ok=True, detail="an ordinary user may make them")
    fixes = {
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
            "1",
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        "/proc/sys/kernel/unprivileged_userns_clone": ("0", "sysctl kernel.unprivileged_userns_clone=1"),
        "/proc/sys/user/max_user_namespaces": ("0", "sysctl user.max_user_namespaces=10000"),
    }
    for path, (value, fix) in fixes.items():
        if Path(path).exists() and Path(path).read_text(encoding="ascii").strip() == value:
            return Check("user namespaces", ok=False, detail=f"{path} is {value}", fix=fix)
    detail = "the kernel refuses them to this user (in a container, its seccomp profile does)"
    return Check("user namespaces", ok=False, detail=detail, fix="run as root, or with seccomp=unconfined")


def _subordinate(who: identity.Identity) -> Check:
    if who.kind == "ranges":
        return Check("users in sandboxes", ok=True, detail=f"uids from {who.uids[0]}, {who.uids[1]} of them")
    if not (shutil.which("newuidmap") and shutil.which("newgidmap")):
        return Check("users in sandboxes", ok=False, detail="no newuidmap: all are root", fix="apt-get install uidmap")
    user = identity.user_name(os.getuid())
    fix = f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
    return Check("users in sandboxes", ok=False, detail=f"{user} has none in /etc/subuid: all are root", fix=fix)


def _control_groups() -> Check:
    limits = Cgroups.here().limits
    missing = sorted({"cpus", "memory", "pids"} - limits)
    if not missing:
        return Check("limits", ok=True, detail="cpus, memory and pids can be limited")
    fix = "run as root" if os.geteuid() else "mount the control groups writable"
    if os.geteuid() and shutil.which("systemd-run"):
        fix = "systemd-run --user --scope -p Delegate=yes -- bench ..."
    return Check("limits", ok=False, detail=f"cannot be limited: {', '.join(missing)}", fix=fix)


def _network() -> Check:
    if not (why := network.missing()):
        return Check("network", ok=True, detail="sandboxes with a network have one of their own (pasta)")
    fix = "apt-get install passt" if shutil.which("pasta") is None else f"chmod 666 {network.TUN}"
    return Check("network", ok=False, detail=f"{why}; sandboxes with a network share the host's", fix=fix)


def _place() -> Check:
    place = default_root()
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    kind = _file_system(there)
    usable = os.access(there, os.W_OK) and kind not in {"overlay", "nfs", "nfs4", "cifs", "fuse", "9p", "vfat"}
    fix = f"set {STATE_VARIABLE} to a folder on a local disk, or {STORAGE_VARIABLE}=tmpfs"
    return Check("place for sandboxes", usable, f"{place} ({kind})", "" if usable else fix)


def _file_system(path: Path) -> str:
    """The kind of file system that holds `path`, by the longest mount point above it."""
    kind, longest = "unknown", -1
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
        _, point, found, *_ = line.split(" ")
        if len(point) > longest and (path == Path(point) or Path(point) in path.parents):
            kind, longest = found, len(point)
    return kind
