"""How much a folder holds, and how that is said and written."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_UNITS = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_UNITS |= {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def tree_bytes(folder: Path | str) -> int:
    """Bytes that the files below a folder take on disk; what cannot be looked at counts nothing."""
    total = 0
    pending = [str(folder)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
    return total


def human_size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def parse_size(text: str) -> int:
    """Bytes of `50GB`, `500 MB` or `1.5TiB`. Raises ConfigError, with an example, for what is no size."""
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([a-z]*)\s*", text.lower(), re.ASCII)
    if not match or match[2] not in _UNITS:
        raise ConfigError(f"{text!r} is not a size", hint="write 500MB, 50GB or 1TB")
    return int(float(match[1]) * _UNITS[match[2]])
