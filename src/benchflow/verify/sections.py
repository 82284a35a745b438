"""Taking the part that acts out of a configuration file and leaving the rest, which may be the work that is scored.

Pure: the agent's text and the image's in, the text to use out. None means that nothing had to be changed.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from typing import TYPE_CHECKING, Any

import tomlkit
import tomlkit.exceptions

if TYPE_CHECKING:
    from collections.abc import MutableMapping


class Unclear(ValueError):
    """The file cannot be taken apart with certainty."""


def swap_ini_section(mine: str, theirs: str, name: str) -> str | None:
    """`mine` with its section `name` replaced by that of `theirs`, or taken out where there is none."""
    rest, acting = _split_ini(mine, name)
    _, original = _split_ini(theirs, name)
    if acting.strip() == original.strip():
        return None
    return rest + (f"\n{original}" if original else "")


def _split_ini(text: str, name: str) -> tuple[str, str]:
    """The text without a section, and all of that section, wherever it stands."""
    kept: list[str] = []
    taken: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        # As the most lenient of all readers takes it: with blanks before and anything behind.
        if line.lstrip().startswith("["):
            inside = bool(re.match(rf"\s*\[+\s*{re.escape(name)}\s*\]", line))
        (taken if inside else kept).append(line)
    return "".join(kept), "".join(taken)


def swap_pytest_table(mine: str, theirs: str) -> str | None:
    """A pyproject.toml with its `tool.pytest` replaced by that of the image's. Raises Unclear."""
    section, original = _pytest_table(mine), _pytest_table(theirs)
    if section == original:
        return None
    try:
        document = tomlkit.parse(mine)
        tool: MutableMapping[str, Any] = document["tool"]
        tool.pop("pytest")
        if original is not None:
            tool["pytest"] = original
        swapped = tomlkit.dumps(document)
        if _pytest_table(swapped) != original:
            raise Unclear("the table is still there")
    except (tomlkit.exceptions.TOMLKitError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise Unclear(str(error)) from None
    return swapped


def _pytest_table(text: str) -> Any:
    """As pytest reads it; a file that it cannot read tells it nothing."""
    try:
        # It reads every kind of line break, as text files are read; TOML itself knows but two.
        return tomllib.loads(re.sub(r"\r\n?", "\n", text)).get("tool", {}).get("pytest")
    except (ValueError, RecursionError, AttributeError):
        return None


def without_import_lines(text: str) -> str | None:
    """A .pth file with its paths and without the lines that run code."""
    # A mark of the byte order is no part of the first line.
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(("import ", "import\t"))]
    return None if len(kept) == len(lines) else "".join(kept)


def named_paths(text: str, folder: str) -> set[str]:
    """The folders that a .pth file in `folder` adds to where modules are looked for."""
    lines = (line.rstrip() for line in text.removeprefix("\ufeff").splitlines())
    return {posixpath.normpath(posixpath.join(folder, line)) for line in lines if line and not line.startswith("#")}


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
