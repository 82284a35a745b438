"""Where a symbolic link may lead, judged from outside by what is known of the links around it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchflow.verify.environment import SCRATCH

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET_PLACES = ("/tests", "/solution", "/logs/verifier", SCRATCH)
"""Where the verifier's own files are."""

UNSURE = 16
"""Ways that one link may lead, going up from places of which it is not known whether they are links."""

_STEPS = 1000
_SYSTEM = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/var/run": "/run",
    "/var/lock": "/run/lock",
}


class Alias(NamedTuple):
    """Where a link leads, and the mode of what is there, as far as it is known."""

    end: str
    mode: int


def secret_end(path: str, links: Mapping[str, str]) -> str | None:
    """Where among the verifier's files, above them, or in /proc, the link at `path` may lead; None for an innocent one.

    What a verifier names below a link that leads above its files may be one of them.
    """
    for end in resolve(path, links):
        if end and any(_within(end, place) or _within(place, end) for place in (*SECRET_PLACES, "/proc")):
            return end
    return None


def secret_end_elsewhere(link: str) -> str | None:
    """Where among the verifier's files a link with this text may lead if it, or a folder that it is in, is moved."""
    parts = [part for part in link.split("/") if part not in ("", ".")]
    if ".." not in parts:
        return None
    end = "/" + "/".join(parts[len(parts) - parts[::-1].index("..") :])
    return end if any(_within(end, place) or _within(place, end) for place in (*SECRET_PLACES, "/proc")) else None


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def resolve(path: str, links: Mapping[str, str]) -> list[str]:
    """Every end that the link at `path` may have. One that goes round leads nowhere, which is "".

    What a link names and then leaves by `..` may be a link of the image's, and what lies above the end of that one may
    be the root: the rest is followed from there as well. A link that does so too often leads to the verifier's files.
    """
    known = {**_SYSTEM, **links}
    ends: list[str] = []
    ways = [tuple(reversed(path.strip("/").split("/")))]
    sure = len(ways[0]) - 1
    for way in ways:
        if len(ways) > UNSURE:
            return [SECRET_PLACES[0]]
        end, others = _walk(way, known, sure)
        ends.append(end)
        ways += [other for other in others if other not in ways]
        sure = 0
    return ends


def _walk(way: tuple[str, ...], links: Mapping[str, str], sure: int) -> tuple[str, list[tuple[str, ...]]]:
    """The end of one way (its names in reverse), and what was left of it where it went up from what may be a link.

    The first `sure` names are folders and nothing else.
    """
    todo, done = list(way), list[str]()
    others: list[tuple[str, ...]] = []
    for _ in range(_STEPS):
        if not todo:
            return "/" + "/".join(done), others
        part = todo.pop()
        if part == "..":
            if len(done) > sure:
                others.append(tuple(todo))
            del done[-1:]
            sure = min(sure, len(done))
        elif part not in ("", "."):
            target = links.get("/" + "/".join([*done, part]))
            if target is None:
                done.append(part)
                continue
            if target.startswith("/"):
                done, sure = [], 0
            todo.extend(reversed(target.split("/")))
    return "", others
