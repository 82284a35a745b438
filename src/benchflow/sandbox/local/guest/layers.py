"""Stacking folders into one writable file system: overlayfs over layers that never change.

Runs in the zygote's mount namespace, where the host's folders are; the result is a detached mount. The kernel
leaves undefined what happens when a lower folder changes, so a folder is either the upper of one live overlay
or a lower of any number, never both; the host side keeps that rule.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from . import kernel, programs

if TYPE_CHECKING:
    from .messages import StackRequest

MIN_TMPFS = 1 << 20


def stack(request: StackRequest, *, user_namespace: bool) -> int:
    """A detached overlay mount of `request`; makes its upper and work folders, and their tmpfs when asked for one."""
    if request["tmpfs_bytes"]:
        os.makedirs(request["home"], exist_ok=True)
        used = sum(_used(folder) for folder in request["charged"])
        options = {"size": str(max(request["tmpfs_bytes"] - used, MIN_TMPFS)), "mode": "0755"}
        kernel.place(kernel.new_mount("tmpfs", options, kernel.ATTR_NOSUID | kernel.ATTR_NODEV), request["home"])
    fresh = not os.path.isdir(request["upper"])
    if request["copy"]:
        os.makedirs(request["upper"])
        programs.run(["cp", "-a", "--reflink=auto", f"{request['copy']}/.", request["upper"]])
    for folder in (request["upper"], request["work"], *([] if request["layers"] else [request["empty"]])):
        os.makedirs(folder, exist_ok=True)
    if fresh and request["layers"]:
        _resemble(request["upper"], request["layers"][0])
    return overlay(
        request["layers"] or [request["empty"]], request["upper"], request["work"], user_namespace=user_namespace
    )


def _resemble(folder: str, model: str) -> None:
    """Give the top folder the looks of the one below: it is seen as `/`, and a fork must leave no trace there."""
    info, now = os.stat(model), os.stat(folder)
    if (info.st_uid, info.st_gid) != (now.st_uid, now.st_gid):
        with suppress(OSError):  # an owner that is not mapped here
            os.chown(folder, info.st_uid, info.st_gid)
    if info.st_mode != now.st_mode:
        os.chmod(folder, info.st_mode & 0o7777)
    os.utime(folder, ns=(info.st_atime_ns, info.st_mtime_ns))


def _used(folder: str) -> int:
    info = os.statvfs(folder)
    return (info.f_blocks - info.f_bfree) * info.f_frsize


def overlay(lower: list[str], upper: str, work: str, *, user_namespace: bool) -> int:
    """A detached overlay mount that opens no devices and never waits for a disk.

    Folders are named by descriptor: option values are bounded, and the host's paths then show nowhere inside.
    """
    handles = [os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for path in (upper, work, *lower)]
    try:
        names = [f"/proc/self/fd/{handle}" for handle in handles]
        options: dict[str, str | None] = {
            "upperdir": names[0],
            "workdir": names[1],
            "index": "off",
            "metacopy": "off",
            "redirect_dir": "nofollow",
        }
        if user_namespace:
            options["userxattr"] = None
        return _first_that_works(names[2:], options, spot=work)
    finally:
        for handle in handles:
            os.close(handle)


def _first_that_works(lower: list[str], options: dict[str, str | None], *, spot: str) -> int:
    """Kernels before 6.5 take all lower folders in one text, those before 5.10 do not know `volatile`."""
    quick = options | {"volatile": None}
    for chosen, by in ((quick, by_descriptor), (quick, by_text), (options, by_descriptor)):
        try:
            return by(lower, chosen, spot)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    return by_text(lower, options, spot)


def by_descriptor(lower: list[str], options: dict[str, str | None], _spot: str) -> int:
    return kernel.new_mount("overlay", options, kernel.ATTR_NODEV, tuple(lower))


def by_text(lower: list[str], options: dict[str, str | None], spot: str) -> int:
    """The classic way needs a place: mount at `spot`, take a detached copy, unmount."""
    words = [f"lowerdir={':'.join(lower)}"]
    words += [key if value is None else f"{key}={value}" for key, value in options.items()]
    kernel.mount_by_text("overlay", spot, ",".join(words))
    try:
        return kernel.clone_tree(spot, recursive=False, attributes=kernel.ATTR_NODEV)
    finally:
        kernel.unmount(spot)
