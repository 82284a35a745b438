"""What the rules about one change have to know of all others. Pure."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchflow.verify.environment import search_path

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from benchflow.sandbox.base import Change
    from benchflow.verify.setting import Setting

SITE = re.compile(r"/(?:site|dist)-packages/")
_VIRTUALENV = re.compile(r"(.*/\.?venv)(?:/|$)")
_MODULE = re.compile(r"(?P<name>[^./]+)(?:\.[^/]*)?\.(?:py|pyc|so)")


@dataclass(frozen=True, slots=True)
class Seen:
    """`programs` are the folders in which programs are found by name: those of PATH, and of virtual environments that
    the image has in the workspace. `above` are the folders of the workspace that these, or the packages of such
    environments, are or lie in. `hidden` are
    modules among the packages of the workspace which the image has, and beside which the agent has put others.
    `repositories` are folders that git would take for one of its own, whatever they are called. `prefixes` are
    folders of the workspace into which the image installed programs with their libraries. `shipped` are paths that the
    image has, of those that were asked for.
    """

    added: frozenset[str]
    links: Mapping[str, str]
    programs: frozenset[str]
    above: frozenset[str]
    hidden: frozenset[str]
    repositories: frozenset[str]
    prefixes: frozenset[str] = frozenset()
    shipped: frozenset[str] = frozenset()

    @classmethod
    def of(cls, mine: Sequence[Change], setting: Setting, shipped: Collection[str] = ()) -> Seen:
        added = frozenset(change.path for change in mine if change.kind == "added")
        inside = [change for change in mine if setting.in_workspace(change.path)]
        programs = {*search_path(setting.env.get("PATH", ""))}
        programs.update(filter(None, (_virtualenv_programs(change, added) for change in inside)))
        sites = {change.path[: found.end() - 1] for change in inside if (found := _shipped_site(change))}
        above = {place for folder in programs | sites for place in _upwards(folder) if setting.in_workspace(place)}
        modules = [(change.kind == "added", module_place(change)) for change in inside if SITE.search(change.path)]
        new, old = ({place for is_new, place in modules if place and is_new == which} for which in (True, False))
        links = {change.path: change.link for change in mine if change.type == "link" and change.kind != "deleted"}
        git = (posixpath.split(change.path) for change in mine if change.kind != "deleted")
        repositories = frozenset(folder for folder, name in git if name in ("HEAD", "objects"))
        path = [folder for folder in search_path(setting.env.get("PATH", "")) if setting.in_workspace(folder)]
        prefixes = frozenset(folder.removesuffix("/bin") for folder in path if folder.endswith("/bin"))
        return cls(
            added,
            links,
            frozenset(programs),
            frozenset(above),
            frozenset(new & old),
            repositories,
            prefixes - {setting.workdir.rstrip("/")},
            frozenset(shipped),
        )


def module_place(change: Change) -> str:
    """The path by which Python knows a module, whatever kind of file it is; "" for what cannot be imported."""
    folder, name = posixpath.split(change.path)
    found = _MODULE.fullmatch(name)
    if change.type == "link" and "." not in name:
        return change.path
    if not found or change.type == "folder" or folder.endswith("/__pycache__"):
        return ""
    return folder if found["name"] == "__init__" else f"{folder}/{found['name']}"


def _virtualenv_programs(change: Change, added: Collection[str]) -> str:
    """The folder of programs of the virtual environment that this is a part of, if the image shipped that."""
    if (named := _VIRTUALENV.match(change.path)) and named[1] not in added:
        return f"{named[1]}/bin"
    folder, name = posixpath.split(change.path)
    if change.kind == "added":
        return ""
    if name == "pyvenv.cfg":
        return f"{folder}/bin"
    return folder if name == "activate" and folder.endswith("/bin") else ""


def _shipped_site(change: Change) -> re.Match[str] | None:
    """Where the packages are that this one of the image's is among."""
    return SITE.search(f"{change.path}/") if change.kind != "added" else None


def _upwards(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:length]) for length in range(2, len(parts) + 1)]
