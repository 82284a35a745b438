"""The overlay through which boxes see the host's own root, mounted once in the zygote's mount namespace.

A layer that shows the host is a folder `.../root/R` with `host.json` beside `root`. On the disk `root` is empty: the
overlay of the folder `fs` over the host's root has to be mounted there first. Nothing is ever written through it.
"""

from __future__ import annotations

import json
import os

from . import kernel


def prepare(layers: list[str]) -> None:
    """Mount what the host layers among `layers` need, unless this was done before."""
    for layer in layers:
        root = os.path.dirname(layer)
        about = f"{os.path.dirname(root)}/host.json"
        if os.path.basename(root) == "root" and os.path.exists(about) and not os.path.ismount(root):
            _mount(root, about)


def release(tree: str) -> None:
    """Before a layer at `tree` is removed: unmount what `prepare` mounted there, or the host's files would be reached.

    Raises OSError.
    """
    if os.path.exists(f"{tree}/host.json") and os.path.ismount(f"{tree}/root"):
        kernel.unmount(f"{tree}/root")


def _mount(root: str, about: str) -> None:
    with open(about) as file:
        lower = json.load(file)["lower"]
    beside = os.path.dirname(root)
    options: dict[str, str | None] = {
        "lowerdir": lower,
        "upperdir": f"{beside}/fs",
        "workdir": f"{beside}/work",
        "index": "off",
        "metacopy": "off",
        "redirect_dir": "follow",
    }
    kernel.place(kernel.new_mount("overlay", options, kernel.ATTR_RDONLY | kernel.ATTR_NODEV), root)
