"""Which parts of the host's root a sandbox may see: a survey that allows, and leaves out whatever it does not name.

Seen as they are: /usr (with /bin, /sbin and /lib*), and what package managers keep about installed packages; in them
everything that not every user of the host may read, and every mount point, is hidden. Copied: the files of /etc that
every user may read and that look like no secret, with accounts reduced to those of the system. All else is an
empty folder or does not exist. The survey only reads; `hostroot` carries it out. It holds for the moment it was made:
a file below /usr that becomes private later stays visible until the next one, to boxes that started before.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchflow.errors import SandboxUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

SYSTEM_FOLDERS = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")

PACKAGE_FOLDERS = ("var/lib/dpkg", "var/lib/pam", "var/lib/ucf", "var/lib/rpm", "var/lib/pacman", "var/cache/debconf")

EMPTY_FOLDERS = {
    **dict.fromkeys(("boot", "dev", "home", "media", "mnt", "opt", "proc", "run", "srv", "sys", "var"), 0o755),
    **dict.fromkeys(("var/backups", "var/cache", "var/lib", "var/local", "var/log", "var/opt", "var/spool"), 0o755),
    **dict.fromkeys(("var/lib/apt/lists/partial", "var/cache/apt/archives/partial"), 0o755),
    **dict.fromkeys(("var/lib/misc", "var/lib/python", "var/lib/systemd", "var/log/apt", "var/mail"), 0o755),
    **dict.fromkeys(("tmp", "var/tmp", "run/lock"), 0o1777),
    "root": 0o700,
}

LINKS = {"var/run": "/run", "var/lock": "/run/lock"}

PRIVATE_AT_TOP_OF_ETC = (
    *("shadow*", "gshadow*", "passwd*", "group*", "subuid*", "subgid*", "sudoers*", "machine-id", "hostname", "hosts*"),
    *("resolv.conf", "fstab*", "crypttab", "exports*", "environment", "cron*"),
    *("NetworkManager", "netplan", "wpa_supplicant", "wireguard", "openvpn", "ipsec*", "ppp", "iptables", "nftables*"),
    *("docker", "containers", "containerd", "kubernetes", "rancher", "cni", "crio", "cloud", "ceph", "letsencrypt"),
    *("postgresql", "mysql", "redis", "consul*", "vault*", "nomad*", "salt", "puppet*", "chef", "ansible"),
)

PRIVATE_ANYWHERE_IN_ETC = (
    *("*.key", "*.keytab", "*.p12", "*.pfx", "*.jks", "*.kdbx", "ssh_host_*", "private", "auth.conf*", "opasswd"),
    *("*secret*", "*credential*", "*token*", "*.netrc", ".git", ".pwd.lock"),
)

SECRET = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----|://[^/\s:@]+:[^/\s@]+@|_authToken|aws_secret_access_key", re.IGNORECASE
)
"""What a file holds that must not be shown, whatever its mode says."""

COPIED_FILE_LIMIT = 4 * 1024 * 1024
"""Bytes above which a file of /etc is left out."""

Kind = Literal["folder", "link", "text", "copy", "through", "hidden"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in the root to be: `path` is relative to it.

    `text` is a link's target, a text's content, or what tells one version of a copied file from another.
    """

    kind: Kind
    path: str
    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    text: str = ""


def stamp(info: os.stat_result) -> list[int]:
    """What changes with whatever is done to a file or folder."""
    times = (info.st_mtime_ns, info.st_ctime_ns)
    return [info.st_mode, info.st_uid, info.st_gid, info.st_size, info.st_dev, info.st_ino, *times]


@dataclass(slots=True)
class Watched:
    """What a survey rests on, with how each thing was before it was looked into; by its path."""

    stamps: dict[str, list[int]] = field(default_factory=dict)
    latest: float = 0.0
    """When the youngest of them was changed."""

    def add(self, path: str | Path, info: os.stat_result | None = None) -> None:
        """What is absent is left out: not knowing of it shows nothing."""
        try:
            info = info or os.lstat(path)
        except OSError:
            return
        self.stamps[str(path)] = stamp(info)
        self.latest = max(self.latest, info.st_mtime, info.st_ctime)


def survey(root: Path, *, mount_points: Collection[str], watched: Watched | None = None) -> list[Entry]:
    """Everything a sandbox on `root` sees of it. Raises SandboxUnavailable when it cannot be shown as it is."""
    watched = Watched() if watched is None else watched
    for name in ("", "etc", "etc/passwd", "etc/group"):
        watched.add(root / name)
    entries = [Entry("folder", path, mode) for path, mode in EMPTY_FOLDERS.items()]
    entries += [Entry("link", path, text=target) for path, target in LINKS.items()]
    for name in (*SYSTEM_FOLDERS, *PACKAGE_FOLDERS):
        entries += _system_folder(root, name, mount_points, watched)
    entries += _etc(root, watched)
    entries += _accounts(root)
    return entries


def mount_points() -> frozenset[str]:
    """Where something is mounted in this process's view of the host."""
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    return frozenset(os.fsdecode(_unescape(line.split(b" ")[4])) for line in lines)


def _unescape(field: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), field)


def _system_folder(root: Path, name: str, mounts: Collection[str], watched: Watched) -> Iterator[Entry]:
    """A folder seen as it is, with what is private in it hidden."""
    path = root / name
    try:
        info = path.lstat()
    except OSError:
        return
    watched.add(path, info)
    if stat.S_ISLNK(info.st_mode):
        yield Entry("link", name, text=os.readlink(path))  # noqa: PTH115  Path.readlink would normalise the text
    elif stat.S_ISDIR(info.st_mode) and _everyone_reads(info):
        if info.st_dev != root.stat().st_dev:
            raise SandboxUnavailable(
                f"{path} is a file system of its own, which cannot be shown under a sandbox's root",
                backend="local",
                hint="set BENCHFLOW_LOCAL_BASE to an unpacked root file system or a tar of one",
            )
        yield Entry("through", name, stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid)
        for hidden in _private_below(path, info.st_dev, mounts, watched):
            yield Entry("hidden", str(hidden.relative_to(root)))


def _private_below(folder: Path, device: int, mounts: Collection[str], watched: Watched) -> Iterator[Path]:
    pending = [str(folder)]
    while pending:
        for item, info in _contents(pending.pop()):
            if item.is_symlink():
                continue
            is_folder = stat.S_ISDIR(info.st_mode)
            if is_folder or "/usr/local/" in item.path:
                watched.add(item.path, info)
            plain = is_folder or stat.S_ISREG(info.st_mode)
            if not plain or not _everyone_reads(info) or info.st_dev != device or item.path in mounts:
                yield Path(item.path)
            elif is_folder:
                pending.append(item.path)
            elif "/local/etc/" in item.path and _holds_secret(Path(item.path)):
                yield Path(item.path)


def _contents(folder: str) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    """What is in a folder, but for what goes away while it is looked at."""
    try:
        items = list(os.scandir(folder))
    except OSError:
        return
    for item in items:
        with suppress(FileNotFoundError):
            yield item, item.stat(follow_symlinks=False)


def _everyone_reads(info: os.stat_result) -> bool:
    needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(info.st_mode) else stat.S_IROTH
    return info.st_mode & needed == needed


def _holds_secret(path: Path) -> bool:
    """Whether a file holds what looks like a secret; one that cannot be read or is very large counts as if it did."""
    try:
        if path.stat().st_size > COPIED_FILE_LIMIT:
            return True
        return SECRET.search(path.read_bytes()) is not None
    except OSError:
        return True


# -- /etc ----------------------------------------------------------------------------------------------------


def _etc(root: Path, watched: Watched) -> Iterator[Entry]:
    yield Entry("folder", "etc")
    yield from _etc_folder(root, "etc", PRIVATE_AT_TOP_OF_ETC + PRIVATE_ANYWHERE_IN_ETC, watched)


def _etc_folder(root: Path, folder: str, private: tuple[str, ...], watched: Watched) -> Iterator[Entry]:
    for item, info in sorted(_contents(str(root / folder)), key=lambda found: found[0].name):
        if any(fnmatchcase(item.name, pattern) for pattern in private):
            continue
        name = f"{folder}/{item.name}"
        watched.add(item.path, info)
        owned = (stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid)
        if item.is_symlink():
            with suppress(FileNotFoundError):
                yield Entry("link", name, text=os.readlink(item.path))  # noqa: PTH115
        elif not _everyone_reads(info):
            continue
        elif item.is_dir(follow_symlinks=False):
            yield Entry("folder", name, *owned)
            yield from _etc_folder(root, name, PRIVATE_ANYWHERE_IN_ETC, watched)
        elif item.is_file(follow_symlinks=False) and not _holds_secret(Path(item.path)):
            yield Entry("copy", name, *owned, text=f"{info.st_size} {info.st_mtime_ns} {info.st_ino}")


def _accounts(root: Path) -> list[Entry]:
    """Account files with the accounts of the system alone, all of them locked."""
    users = [fields for fields in _table(root / "etc/passwd", 7) if _is_system(fields[2])]
    users = users or [["root", "x", "0", "0", "root", "/root", "/bin/sh"]]
    names = {fields[0] for fields in users}
    groups = [fields for fields in _table(root / "etc/group", 4) if _is_system(fields[2])]
    groups = groups or [["root", "x", "0", ""]]
    members = {fields[0]: ",".join(m for m in fields[3].split(",") if m in names) for fields in groups}
    texts = {
        "passwd": "".join(":".join([f[0], "x", *f[2:]]) + "\n" for f in users),
        "group": "".join(f"{f[0]}:x:{f[2]}:{members[f[0]]}\n" for f in groups),
        "shadow": "".join(f"{name}:*:19000:0:99999:7:::\n" for name in [f[0] for f in users]),
        "gshadow": "".join(f"{f[0]}:*::{members[f[0]]}\n" for f in groups),
        "subuid": "",
        "subgid": "",
        "hosts": "127.0.0.1\tlocalhost\n::1\tlocalhost\n",
        "hostname": "localhost\n",
        "machine-id": "",
        "resolv.conf": "",
    }
    private = {"shadow", "gshadow"}
    return [Entry("text", f"etc/{name}", 0o600 if name in private else 0o644, text=t) for name, t in texts.items()]


def _table(path: Path, columns: int) -> list[list[str]]:
    rows = (line.split(":") for line in _read_text(path).splitlines())
    return [row for row in rows if len(row) == columns and row[0] and row[2].isdigit()]


def _is_system(number: str) -> bool:
    return int(number) < 1000 or int(number) == 65534


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
