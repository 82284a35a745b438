"""What a COPY copies: decisions on the listing of a build context.

Sources are found in the listing alone, never on the disk: what the ignore file hides cannot be copied, and a link
that leads out of the context leads nowhere. A link named as a source is followed within the context, as Docker does;
links inside a copied folder stay links.
"""

from __future__ import annotations

import posixpath
import re
import tarfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchflow.sandbox.dockerignore import glob_regex

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from benchflow.sandbox.dockerignore import ContextFile

LINK_LIMIT = 40
"""Links followed on the way to one source, as the kernel has it."""


@dataclass(frozen=True, slots=True)
class Source:
    """One thing to copy. `name` is its last part; the files of a folder are named relative to it."""

    name: str
    folder: bool
    files: tuple[ContextFile, ...]


def find_sources(context: Mapping[str, ContextFile], pattern: str) -> list[Source]:
    """What `pattern` names in the context. Raises ValueError when it names nothing, or a link leads out."""
    wanted = posixpath.normpath(f"/{pattern}").strip("/")
    if not re.search(r"[*?\[]", wanted):
        return [_source(context, wanted)]
    regex = re.compile(glob_regex(re.sub(r"\*+", "*", wanted)), re.DOTALL)
    found = [_source(context, name) for name in context if regex.fullmatch(name)]
    if not found:
        raise ValueError(f"{pattern!r} matches nothing in the build context")
    return found


def _source(context: Mapping[str, ContextFile], wanted: str) -> Source:
    name = _resolve(context, wanted)
    shown = posixpath.basename(wanted)
    if name and context[name].kind != "folder":
        return Source(shown, folder=False, files=(replace(context[name], name=shown),))
    prefix = f"{name}/" if name else ""
    below = (file for file in context.values() if file.name.startswith(prefix))
    return Source(shown, folder=True, files=tuple(replace(file, name=file.name.removeprefix(prefix)) for file in below))


def _resolve(context: Mapping[str, ContextFile], wanted: str) -> str:
    """The name of the file or folder that `wanted` leads to; links are followed as if the context were the root."""
    rest = [part for part in wanted.split("/") if part]
    here: list[str] = []
    followed = 0
    while rest:
        part = rest.pop(0)
        if part in {".", ""}:
            continue
        if part == "..":
            here = here[:-1]
            continue
        name = "/".join([*here, part])
        file = context.get(name)
        if file is None:
            raise ValueError(f"{wanted!r} is not in the build context (or its ignore file hides it)")
        if file.kind == "link":
            followed += 1
            if followed > LINK_LIMIT:
                raise ValueError(f"{wanted!r} leads through too many links")
            here = [] if file.target.startswith("/") else here
            rest = file.target.split("/") + rest
        else:
            here.append(part)
    return "/".join(here)


def is_archive(path: Path) -> bool:
    """Whether ADD would unpack this file."""
    try:
        return tarfile.is_tarfile(path)
    except OSError:
        return False


def placed(sources: Iterable[Source], name: str = "") -> list[ContextFile]:
    """The files, named as they are to lie in the destination folder. A single file is called `name` there, if given."""
    return [
        replace(file, name=name or file.name) if not source.folder else file
        for source in sources
        for file in source.files
    ]
