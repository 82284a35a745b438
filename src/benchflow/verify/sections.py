"""Taking the part that acts out of a configuration file and leaving the rest, which may be the work that is scored.

Pure: the agent's text and the image's in, the text to use out. None means that nothing had to be changed.
"""

from __future__ import annotations

import posixpath
import re
import struct
import tomllib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import tomlkit
import tomlkit.exceptions

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping


class Unclear(ValueError):
    """The file cannot be taken apart with certainty."""


def swap_ini_section(mine: str, theirs: str, *names: str) -> str | None:
    """`mine` with its sections of these names replaced by those of `theirs`, or taken out where there are none."""
    use = mine
    for name in names:
        rest, acting = _split_ini(use, name)
        _, original = _split_ini(theirs, name)
        if acting.strip() != original.strip():
            use = rest + (f"\n{original}" if original else "")
    return None if use == mine else use


def _split_ini(text: str, name: str) -> tuple[str, str]:
    """The text without a section, and all of that section, wherever it stands."""
    kept: list[str] = []
    taken: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        # As the most lenient of all readers takes it: with blanks before and anything behind.
        if line.lstrip().startswith("["):
            inside = line.strip().strip("[]").strip() == name or bool(
                re.match(rf"\s*\[+\s*{re.escape(name)}\s*\]", line)
            )
        (taken if inside else kept).append(line)
    return "".join(kept), "".join(taken)


def swap_tables(mine: str, theirs: str, *names: str) -> str | None:
    """A pyproject.toml with the tables of these (dotted) names replaced by those of the image's. Raises Unclear."""
    wrong = [name for name in names if _table(mine, name) != _table(theirs, name)]
    if not wrong:
        return None
    try:
        document: MutableMapping[str, Any] = tomlkit.parse(mine)
        for name in wrong:
            *above, last = name.split(".")
            place = document
            for key in above:
                place = place.setdefault(key, tomlkit.table(is_super_table=True))
            place.pop(last, None)
            if (original := _table(theirs, name)) is not None:
                place[last] = original
        swapped = tomlkit.dumps(document)
        if any(_table(swapped, name) != _table(theirs, name) for name in wrong):
            raise Unclear("the table is still there")
    except (tomlkit.exceptions.TOMLKitError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise Unclear(str(error)) from None
    return swapped


def _table(text: str, name: str) -> Any:
    """As programs read it; a file that they cannot read tells them nothing."""
    try:
        # They read every kind of line break, as text files are read; TOML itself knows but two.
        found: Any = tomllib.loads(re.sub(r"\r\n?", "\n", text))
        for key in name.split("."):
            found = found.get(key, {})
    except (ValueError, RecursionError, AttributeError):
        return None
    return found or None


_FINDER = re.compile(r"import (__editable___\w+_finder); \1\.install\(\)\s*", re.ASCII)
_MAPPING = re.compile(r"^MAPPING\b[^=\n]*= \{([^\n]*)\}$", re.MULTILINE)
# Of the characters of a path only such as end no line for any reader.
_MAPPED = re.compile(r"'(\w+)': '(/[\w .+@/-]*)/\1'", re.ASCII)


def editable_finders(text: str) -> list[str]:
    """The modules by which a .pth file has an editable installation found, as setuptools writes it."""
    return [found[1] for line in text.splitlines() if (found := _FINDER.fullmatch(line))]


def without_import_lines(text: str, finders: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """A .pth file with its paths and without the lines that run code.

    In the place of one that has an editable installation found are the folders in which that would find its packages,
    according to the text of its module in `finders`.
    """
    # A mark of the byte order is no part of the first line.
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    kept: list[str] = []
    for line in lines:
        if not line.startswith(("import ", "import\t")):
            kept.append(line)
        elif found := _FINDER.fullmatch(line):
            mapping = _MAPPING.search(finders.get(found[1], ""))
            kept += dict.fromkeys(f"{folder}\n" for _, folder in _MAPPED.findall(mapping[1])) if mapping else ()
    return None if kept == lines else "".join(kept)


def named_paths(text: str, folder: str) -> set[str]:
    """The folders that a .pth file in `folder` adds to where modules are looked for."""
    text = text.removeprefix("\ufeff")
    # Readers differ in what ends a line.
    lines = {line.rstrip() for line in (*text.splitlines(), *re.split(r"\r\n?|\n", text))}
    return {posixpath.normpath(posixpath.join(folder, line)) for line in lines if line and not line.startswith("#")}


_CACHE_MAGIC = b"glibc-ld.so.cache1.1"


def libraries_of(text: str) -> dict[str, set[str]]:
    """The libraries that a cache of the dynamic loader knows, by the names under which programs ask for them.

    Raises Unclear for what the loader would not read either.
    """
    data = text.encode("utf-8", "surrogateescape")
    start = data.find(_CACHE_MAGIC)
    if start < 0:
        raise Unclear("not a cache of the loader")
    data = data[start:]
    try:
        (count,) = struct.unpack_from("=I", data, len(_CACHE_MAGIC))
        found: dict[str, set[str]] = {}
        for number in range(count):
            _, key, value = struct.unpack_from("=iII", data, 48 + 24 * number)
            found.setdefault(_string(data, key), set()).add(_string(data, value))
    except (struct.error, ValueError) as error:
        raise Unclear(str(error)) from None
    return found


def _string(data: bytes, offset: int) -> str:
    return data[offset : data.index(0, offset)].decode("utf-8", "surrogateescape")


def leads_elsewhere(mine: str, theirs: str) -> bool:
    """Whether a cache of the loader's has other libraries under names that the image's knows, or cannot be read."""
    try:
        new, old = libraries_of(mine), libraries_of(theirs)
    except Unclear:
        return True
    return any(new.get(name) not in (None, places) for name, places in old.items())


_HARMLESS = {
    "core": {"repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase", "precomposeunicode"}
    | {"symlinks", "autocrlf", "eol", "safecrlf", "quotepath", "abbrev", "commentchar"},
    "user": {"name", "email"},
    "author": {"name", "email"},
    "committer": {"name", "email"},
    "remote": {"url", "fetch", "pushurl", "tagopt", "prune", "mirror"},
    "branch": {"remote", "merge", "rebase", "description", "autosetuprebase", "autosetupmerge"},
    "init": {"defaultbranch"},
    "pull": {"rebase", "ff"},
    "push": {"default", "autosetupremote", "followtags"},
    "fetch": {"prune"},
    "merge": {"ff", "conflictstyle"},
    "rebase": {"autostash", "autosquash"},
    "receive": {"denycurrentbranch", "denydeletes", "denynonfastforwards", "denydeletecurrent", "autogc"},
    "http": {"receivepack", "uploadpack", "postbuffer"},
    "commit": {"gpgsign"},
    "tag": {"gpgsign"},
    "color": {"ui"},
    "advice": {"detachedhead", "addignoredfile"},
    "submodule": {"url", "active", "path", "branch"},
    "extensions": {"objectformat", "refstorage", "worktreeconfig", "partialclone"},
    "gc": {"auto"},
    "index": {"version"},
}
"""Settings of a repository that make git run nothing."""

_HEADER = re.compile(r"\s*\[([A-Za-z0-9-]+)(?:\s+\"(?:[^\"\\]|\\.)*\")?\]\s*")
_SETTING = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=.*)?")


def harmless_git_config(text: str) -> str | None:
    """A repository's configuration with nothing but settings known to run no program."""
    kept = []
    allowed: set[str] = set()
    lines = text.splitlines()
    for line in lines:
        if not line.strip() or line.lstrip().startswith(("#", ";")):
            kept.append(line)
        elif header := _HEADER.fullmatch(line):
            allowed = _HARMLESS.get(header[1].lower(), set())
            kept.append(line)
        elif (
            (setting := _SETTING.fullmatch(line)) and setting[1].lower() in allowed and not line.rstrip().endswith("\\")
        ):
            kept.append(line)
    return None if len(kept) == len(lines) else "\n".join(kept) + "\n"
