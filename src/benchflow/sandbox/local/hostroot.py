"""The host's own root as the base of sandboxes: a layer that shows what `hostsurvey` allows, and nothing else.

What is seen as it is on the host (/usr and its like) gets into the root in one of three ways:
- *redirected*, for root: the layer's folder `fs/` is an overlay's upper over the host's `/`, and the visible root is a
  new folder `R` in it, in which /usr is a folder that the overlay redirects to the host's. The zygote mounts that
  overlay read-only, where only its boxes see it, at `root/` (`host.json` tells it so). Whatever is not in `R` does not
  exist, also if it appears later.
- *masked*, for root on a host whose root is itself an overlay, so that only one more fits on it: `fs/` is stacked
  directly on `/`. What is at its top and not allowed is covered by a whiteout; every folder of ours is opaque.
- *mounted*, for ordinary users, whom the kernel lets neither redirect nor stack on `/`: /usr is mounted, read-only.
  What is private there and yet readable for the user is covered by empty mounts.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchflow.sandbox.base import Mount
from benchflow.sandbox.local.hostcache import kept_survey
from benchflow.sandbox.local.hostsurvey import mount_points, survey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchflow.sandbox.local.hostsurvey import Entry

FORMAT = 3
"""Changes whenever the same survey would be laid out differently."""

BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
"""The certificates that programs of the system trust."""

LOCAL_CERTIFICATES = Path("/usr/local/share/ca-certificates")
"""Where a host keeps the certificates that it adds to them."""

TRUST_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS")

Style = Literal["redirected", "masked", "mounted"]

_VISIBLE = "R"


class HostView:
    """What sandboxes see of the host's root now. Making one reads /etc and the names below /usr: use a thread."""

    def __init__(self, root: Path = Path("/"), *, privileged: bool = True, kept: Path | None = None) -> None:
        """`kept` is a folder for what the next process may use again."""
        self._root = root
        self._entries = kept_survey(root, kept) if kept else survey(root, mount_points=mount_points())
        self._style: Style = "mounted"
        if privileged:
            self._style = "masked" if _is_overlay(root) else "redirected"
        self._stamps = _stamps(root)
        self.key = self._digest()
        """Differs for views that show different things."""

    @property
    def current(self) -> bool:
        """Whether the places where private things usually appear still have the entries they had."""
        return _stamps(self._root) == self._stamps

    def _digest(self) -> str:
        top = sorted(os.listdir(self._root)) if self._style == "masked" else []  # noqa: PTH208  names only
        # What a package manager installed stands for the content of /usr, which is not read.
        packages = [_stamp(self._root / name) for name in ("var/lib/dpkg/status", "var/lib/rpm", "var/lib/pacman")]
        shown = [astuple(entry) for entry in self._entries]
        parts = [FORMAT, str(self._root), self._style, top, packages, shown]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]

    def make(self, folder: Path) -> None:
        """Lay the view out in the empty folder `folder`, with what boxes need of it beside that."""
        base = folder / _VISIBLE if self._style == "redirected" else folder
        _Layout(self._root, base, self._style).lay(self._entries)
        beside = folder.parent
        if self._style == "redirected":
            (beside / "work").mkdir()
            (beside / "root").mkdir()
            (beside / "host.json").write_text(json.dumps({"lower": str(self._root)}))
        elif self._style == "mounted":
            (beside / "nothing").mkdir()
            (beside / "empty").touch()

    def layers(self, folder: Path) -> tuple[Path, ...]:
        """The layers that show a view laid out in `folder`, top first."""
        if self._style == "redirected":
            return (folder.parent / "root" / _VISIBLE,)
        return (folder, self._root) if self._style == "masked" else (folder,)

    def mounts(self, folder: Path) -> tuple[Mount, ...]:
        """What has to be mounted over the layers of a view laid out in `folder`."""
        if self._style != "mounted":
            return ()
        shown = [entry.path for entry in self._entries if entry.kind == "through" and "/" not in entry.path]
        mounts = [Mount(self._root / path, f"/{path}") for path in shown]
        for entry in self._entries:
            private = self._root / entry.path
            if entry.kind == "hidden" and entry.path.split("/")[0] in shown and os.access(private, os.R_OK):
                cover = "nothing" if private.is_dir() else "empty"
                mounts.append(Mount(folder.parent / cover, f"/{entry.path}"))
        return tuple(mounts)


_views: dict[bool, HostView] = {}


def host_view(*, privileged: bool, kept: Path) -> HostView:
    """What sandboxes see of this host's root now; surveyed again only when it has changed. Use a thread.

    `kept` is a folder for what the next process may use again.
    """
    view = _views.get(privileged)
    if view is None or not view.current:
        view = _views[privileged] = HostView(privileged=privileged, kept=kept)
    return view


def trust_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that make programs with certificates of their own trust what the host's programs trust.

    Empty unless the host has certificates of its own. The host's variables themselves are never passed on.
    """
    named = environment.get("SSL_CERT_FILE", str(BUNDLE))
    added = any(LOCAL_CERTIFICATES.rglob("*.crt"))
    if not BUNDLE.is_file() or (not added and named == str(BUNDLE)):
        return {}
    return dict.fromkeys(TRUST_VARIABLES, str(BUNDLE))


def limits(*, privileged: bool) -> tuple[str, ...]:
    """What cannot work on the host's root, as notes for whoever reads the results."""
    if privileged:
        return ()
    return ("without root, the host's /usr is seen but cannot be written to: nothing can be installed there",)


def _is_overlay(root: Path) -> bool:
    """Whether `root` lies on an overlay, on which no more than one other can be stacked."""
    device = root.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == wanted:
            return rest.split()[0] == "overlay"
    return False


def _stamps(root: Path) -> list[list[int]]:
    """When entries last came or went, or modes changed, in the folders that matter most."""
    names = ("", "etc", "usr", "usr/local", "usr/local/etc", "etc/passwd", "etc/ssl/certs", "var/lib/dpkg/status")
    return [_stamp(root / name) for name in names]


def _stamp(path: Path) -> list[int]:
    try:
        info = path.stat()
    except OSError:
        return []
    return [info.st_size, info.st_mtime_ns, info.st_ctime_ns]


class _Layout:
    """Writes entries of a survey into a folder in overlay form."""

    def __init__(self, root: Path, base: Path, style: Style) -> None:
        self._root = root
        self._base = base
        self._style = style

    def lay(self, entries: Iterable[Entry]) -> None:
        self._base.mkdir(exist_ok=True)
        self._base.chmod(0o755)
        for entry in entries:
            self._one(entry)
        if self._style == "masked":
            for name in os.listdir(self._root):  # noqa: PTH208  names only
                if not os.path.lexists(self._base / name):
                    _whiteout(self._base / name)

    def _one(self, entry: Entry) -> None:
        place = self._base / entry.path
        if entry.kind == "hidden":
            self._hide(entry.path)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        if entry.kind == "link":
            place.symlink_to(entry.text)
            return
        if entry.kind == "folder":
            place.mkdir(exist_ok=True)
            self._mark(place, "opaque", b"y", style="masked")
        elif entry.kind == "text":
            place.write_text(entry.text)
        elif entry.kind == "copy":
            try:
                shutil.copyfile(self._root / entry.path, place, follow_symlinks=False)
            except OSError:  # it went away since the survey
                return
        else:
            self._see_through(entry, place)
        self._own(place, entry.mode, entry.uid, entry.gid)

    def _see_through(self, entry: Entry, place: Path) -> None:
        if self._style == "redirected" or "/" not in entry.path:
            place.mkdir(exist_ok=True)
            self._mark(place, "redirect", os.fsencode(f"/{entry.path}"), style="redirected")
        else:
            # Below a folder of ours nothing of the host shows; what is needed there is copied.
            shutil.copytree(self._root / entry.path, place, symlinks=True, ignore=_private, dirs_exist_ok=True)

    def _hide(self, path: str) -> None:
        """Cover something of the host. The folders above it get the modes they have there: the upper folder's count."""
        if self._style == "mounted" or (self._style == "masked" and path.startswith("var/")):
            return  # covered by a mount, or below a folder that was copied without it
        for parent in reversed(Path(path).parents[:-1]):
            place = self._base / parent
            if not place.is_dir():
                info = (self._root / parent).stat()
                place.mkdir()
                self._own(place, stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid)
        _whiteout(self._base / path)

    def _mark(self, place: Path, name: str, value: bytes, *, style: Style) -> None:
        if self._style == style:
            os.setxattr(place, f"trusted.overlay.{name}", value)

    def _own(self, place: Path, mode: int, uid: int, gid: int) -> None:
        if self._style != "mounted":
            os.chown(place, uid, gid)
        place.chmod(mode)


def _whiteout(place: Path) -> None:
    os.mknod(place, stat.S_IFCHR, os.makedev(0, 0))


def _private(folder: str, names: list[str]) -> list[str]:
    """Names that are not copied: what not every user of the host may read, and what is no file, folder or link."""
    return [name for name in names if not _is_public((Path(folder) / name).lstat().st_mode)]


def _is_public(mode: int) -> bool:
    return stat.S_ISLNK(mode) or bool((stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and mode & stat.S_IROTH)
