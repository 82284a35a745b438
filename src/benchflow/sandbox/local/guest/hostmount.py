"""The host's mounts, in the zygote's mount namespace: the overlay through which boxes see the host's own root, mounted
once; and those of containers, which are none of our business.

A layer that shows the host is a folder `.../root/R` with `host.json` beside `root`. On the disk `root` is empty: the
overlay of the folder `fs` over the host's root has to be mounted there first. Nothing is ever written through it.
"""

from __future__ import annotations

import json
import os

from . import kernel, root

CONTAINERS = (
    *(b"/run/docker/", b"/run/containerd/", b"/run/containers/", b"/run/netns/", b"/run/crun/", b"/run/runc/"),
    *(b"/var/lib/docker/", b"/var/lib/containerd/", b"/var/lib/containers/"),
)
"""Below these, container engines mount what is theirs."""


def let_containers_go() -> None:
    """Give up our copies of the mounts of containers: they would live on here after their containers are gone."""
    with open("/proc/self/mountinfo", "rb") as file:
        points = [root.unescape(line.split(b" ")[4]) for line in file]
    for point in reversed(points):
        if point.startswith(CONTAINERS):
            try:
                kernel.unmount(os.fsdecode(point))
            except OSError:
                continue


def prepare(layers: list[str]) -> None:
    """Mount what the host layers among `layers` need, unless this was done before."""
    for layer in layers:
        place = os.path.dirname(layer)
        about = f"{os.path.dirname(place)}/host.json"
        if os.path.basename(place) == "root" and os.path.exists(about) and not os.path.ismount(place):
            _mount(place, about)


def release(tree: str) -> None:
    """Before a layer at `tree` is removed: unmount what `prepare` mounted there, or the host's files would be reached.

    Raises OSError.
    """
    if os.path.exists(f"{tree}/host.json") and os.path.ismount(f"{tree}/root"):
        kernel.unmount(f"{tree}/root")


def _mount(place: str, about: str) -> None:
    with open(about) as file:
        lower = json.load(file)["lower"]
    beside = os.path.dirname(place)
    options: dict[str, str | None] = {
        "lowerdir": lower,
        "upperdir": f"{beside}/fs",
        "workdir": f"{beside}/work",
        "index": "off",
        "metacopy": "off",
        "redirect_dir": "follow",
    }
    kernel.place(kernel.new_mount("overlay", options, kernel.ATTR_RDONLY | kernel.ATTR_NODEV), place)
