"""What a box is made of."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchflow.sandbox.base import Limits, Mount, Network, Owner

if TYPE_CHECKING:
    from pathlib import Path


def slug(name: str) -> str:
    """A name as a host name may be."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "box"


def new_id(name: str) -> str:
    """A name that no other box has."""
    return f"{slug(name)}-{secrets.token_hex(5)}"


@dataclass(frozen=True, slots=True)
class BoxSpec:
    """`layers` are folders, top first, never written to; none is an empty root.

    `upper`, when given, is an existing folder that receives every change and is kept after `stop`: it then is a layer
    for other boxes (whiteouts and opaque folders in overlayfs form). `<upper>.work` is used beside it and removed at
    `stop`. `id` is unique on this machine, and made up when empty. `folders` are made inside if they are missing.
    """

    name: str
    layers: tuple[Path, ...]
    upper: Path | None = None
    network: Network = field(default_factory=Network)
    limits: Limits = field(default_factory=Limits)
    mounts: tuple[Mount, ...] = ()
    hostname: str = ""
    owner: Owner = field(default_factory=Owner)
    id: str = ""
    folders: tuple[str, ...] = ()
