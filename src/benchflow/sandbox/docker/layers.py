"""A container's layers as folders of this machine: what it wrote, and what its image is made of.

The engine names them when the container is looked at. A fork stands on a snapshot of its original, which counts as
written; how many layers the image itself has is handed on from original to fork.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchflow.sandbox.docker.engine import Json

ATTRIBUTES = "trusted"
"""Where the kernel keeps its marks in the layers of an engine that runs as root."""

HOLES_SHARE = 0.5
"""Share of the free space that the holes in what a container wrote may come to: a snapshot writes them out."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Both top first."""

    changed: list[str]
    base: list[str]
    image_count: int
    """How many of `base` are the image's; the others are the engine's own, under every container."""


def refuse_holes(folders: list[str]) -> None:
    """Raises OSError when a snapshot of these layers would fill the disk: engines write the holes of files as zeros."""
    holes = 0
    room = shutil.disk_usage(folders[0]).free * HOLES_SHARE
    for folder in folders:
        for place, _, names in os.walk(folder):
            for name in names:
                with suppress(FileNotFoundError):
                    info = os.lstat(f"{place}/{name}")
                    holes += max(0, info.st_size - info.st_blocks * 512)
        if holes > room:
            raise OSError(errno.ENOSPC, f"files with holes of {holes >> 30} GiB, which a snapshot would write out")


def layers_of(container: Json, image_count: int | None) -> Layers | None:
    """The layers of a container by what the engine says of it; None where it keeps them in another way.

    `image_count` is that of the original for a fork, and None for an original.
    """
    driver = container.get("GraphDriver") or {}
    data = driver.get("Data") or {}
    upper, lower = data.get("UpperDir"), data.get("LowerDir")
    if driver.get("Name") not in {"overlay", "overlay2"} or not upper or not lower:
        return None
    folders = str(lower).split(":")
    own = [folder for folder in folders if Path(folder).parent.name.endswith("-init")]
    rest = [folder for folder in folders if folder not in own]
    count = len(rest) if image_count is None else image_count
    cut = len(rest) - count
    if cut < 0 or not all(Path(folder).is_dir() for folder in (upper, *folders)):
        return None
    return Layers([str(upper), *rest[:cut]], [*own, *rest[cut:]], count)
