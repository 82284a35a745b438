"""The survey of the host's root, kept on the disk for the next process: walking all of /usr takes most of a second.

A kept survey is used again only if looking would most likely find the same. Checked are: the rules themselves, who
asks, what is mounted in the folders that are seen, and of everything in `Watched` its kind, mode, owner, identity, size
and times. That is every folder that the survey walked, so whatever came, went, was renamed or is a folder and became
private is noticed; and every file of /etc and below /usr/local. Not checked, because that is the walk that is to be
spared: other files below /usr whose mode alone was changed. So a survey is never older than `MAX_AGE`: after that the
walk is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.sandbox.local import hostsurvey
from benchflow.sandbox.local.hostsurvey import (
    PACKAGE_FOLDERS,
    SYSTEM_FOLDERS,
    Entry,
    Watched,
    mount_points,
    stamp,
    survey,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MAX_AGE = 600.0
"""Seconds that a survey is used for."""

UNSETTLED = 2.0
"""Seconds before a survey within which a change makes it unfit to be kept: clocks of file systems are coarse, and the
same time could stand for the next change too."""


def kept_survey(root: Path, folder: Path) -> list[Entry]:
    """What `survey` says, or said not long ago when nothing has changed since; kept in `folder`. Use a thread.

    Raises what `survey` raises. A folder that cannot be used costs time, not the survey.
    """
    mounts = mount_points()
    inside = _inside(root, mounts)
    place = folder / f"{_rules(root)}.json"
    if (found := _load(place, inside)) is not None:
        return found
    begun, watched = time.time(), Watched()
    entries = survey(root, mount_points=mounts, watched=watched)
    if watched.latest < begun - UNSETTLED:
        with suppress(OSError):
            _store(place, {"made": begun, "mounts": inside, "stamps": watched.stamps}, entries)
    return entries


def _rules(root: Path) -> str:
    """Differs for surveys that would be made differently."""
    code = Path(hostsurvey.__file__).read_bytes()
    return hashlib.sha256(b"\0".join([os.fsencode(root), str(os.geteuid()).encode(), code])).hexdigest()[:20]


def _inside(root: Path, mounts: Collection[str]) -> list[str]:
    """The mount points in folders that are seen as they are; others come and go with every container."""
    seen = tuple(f"{root / name}/" for name in (*SYSTEM_FOLDERS, *PACKAGE_FOLDERS))
    return sorted(point for point in mounts if point.startswith(seen))


def _load(place: Path, mounts: list[str]) -> list[Entry] | None:
    try:
        kept = json.loads(place.read_bytes())
        fresh = 0 <= time.time() - kept["made"] <= MAX_AGE
        if not fresh or kept["mounts"] != mounts or not _unchanged(kept["stamps"]):
            return None
        return [Entry(*fields) for fields in kept["entries"]]
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _unchanged(stamps: Mapping[str, list[int]]) -> bool:
    """Whether everything is as it was. Raises OSError for what is gone."""
    return all(stamp(os.lstat(path)) == kept for path, kept in stamps.items())


def _store(place: Path, about: Mapping[str, object], entries: list[Entry]) -> None:
    text = json.dumps({**about, "entries": [astuple(entry) for entry in entries]})
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = place.with_name(f"{place.name}.{secrets.token_hex(4)}")
    try:
        fresh.touch(mode=0o600, exist_ok=False)
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(place)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    for other in place.parent.glob("*.json"):
        if other != place:
            other.unlink(missing_ok=True)
