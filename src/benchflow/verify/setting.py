"""What the rules about changes need to know of the task and its sandbox, and how a rule says what it found."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from benchflow.verify.evidence import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchflow.sandbox.base import Change
    from benchflow.verify.evidence import Severity

_ENVIRONMENT = re.compile(r"(?:-m[\"',\s]+venv|\buv\s+venv|\bvirtualenv)[\"',]*\s+([^\n;&|)]*)")
_MAKE = re.compile(r"\bmake\b([^\n;&|]*)")
_TARGET = re.compile(r"(?<=\s)[a-z][\w-]*(?=\s|$)")
_WRITES = (
    re.compile(r">>?\s*([\"']?[\w./-]+)"),
    re.compile(r"\b(?:cp|mv|tee|rsync|ln|touch|git\s+clone)\s([^\n;&|<>]*)"),
)
_INSTALLS = re.compile(
    r"\b(?:apt|apt-get|apk|yum|dnf|microdnf|pacman|pip3?|uv|poetry|conda|npm|yarn|pnpm|cargo|gem)\s[^\n;&|]*?"
    r"\b(?:install|add|i|S)\b([^\n;&|]*)"
)
_LINK_USE = re.compile(
    r"\b(?:readlink|islink|is_symlink|symlinks?|lstat)\b|(?:\[|\btest)\s+(?:!\s+)?-[Lh]\s|\btype\s+l\b"
)
_SHELL_USE = re.compile(
    r"(?<!\w)(?:ba|da|a|k|z|c|tc)?sh[\s\"',]+(?:-\S+[\s\"',]+(?:pipefail[\s\"',]+)?)*-(?:\w*[li]|-login)"
    r"|\b(?:su|sudo|runuser)\b[^\n;|&]*[\s\"'](?:-|-\w*[li]\w*|--login)(?![\w-])|/etc/profile|\.bashrc"
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What the rules need to know. `words` are all words in the task's own test files, `asked` those of its
    instruction, `test_files` the names of the test files, `environments` those of the virtual environments and targets
    that they make, `makes` those of all that their commands write, `installs` those of the packages that they install.

    `copied` says that everything which differs was carried over from the agent's sandbox, whoever owns it now; `live`,
    that processes of the agent go on beside the verifier. `user` is whom the agent ran as. `declared` are files that
    the task hands to a separate verifier by name. `about_links` says that the tests look at links themselves,
    and not only at what they lead to; `login_shell`, that they start shells which read start-up files.
    """

    workdir: str
    env: Mapping[str, str] = field(default_factory=dict)
    root: bool = False
    user: str | int | None = None
    copied: bool = False
    live: bool = False
    words: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    test_files: frozenset[str] = frozenset()
    environments: frozenset[str] = frozenset()
    makes: frozenset[str] = frozenset()
    installs: frozenset[str] = frozenset()
    declared: frozenset[str] = frozenset()
    about_links: bool = False
    login_shell: bool = False
    clean_conftests: bool = True
    remove_hooks: bool = True
    restore_files: bool = True
    git_hooks: bool = False

    def told(self, tests: Mapping[str, str], instruction: str) -> Setting:
        """This with all that the task's own words say; `tests` are the test files, by their paths."""
        texts = list(tests.values())
        return replace(
            self,
            words=words_of(texts),
            asked=words_of([instruction]),
            test_files=frozenset(posixpath.basename(path) for path in tests),
            environments=environments_of(texts),
            makes=names_made(texts),
            installs=names_installed(texts),
            about_links=any(_LINK_USE.search(text) for text in texts),
            login_shell=any(_SHELL_USE.search(text) for text in texts),
        )

    def in_workspace(self, path: str) -> bool:
        return self.workdir != "/" and path.startswith(f"{self.workdir.rstrip('/')}/")

    def declares(self, change: Change) -> bool:
        """Whether the task itself asks for just this file."""
        return change.path in self.declared and change.type == "file"

    def writes(self, change: Change) -> bool:
        """Whether the agent could have made this change: what belongs to root alone, a plain user could not.

        The owner of what was deleted is the image's word; the workspace was the agent's all the same.
        """
        if change.kind == "deleted" and self.in_workspace(change.path):
            return True
        return self.root or self.copied or change.uid != 0 or (change.type != "link" and bool(change.mode & 0o022))


def words_of(texts: Iterable[str]) -> frozenset[str]:
    """Every word in the task's test files that could name a program, a module or a file."""
    found = {word for text in texts for word in re.findall(r"[A-Za-z0-9_.+\[-]+", text)}
    # What ends a sentence may have been meant without its stop.
    return frozenset(found | {word.rstrip(".") for word in found} - {""})


def environments_of(texts: Iterable[str]) -> frozenset[str]:
    """The names of virtual environments that the task's test files make, and of targets that they have made."""
    texts = list(texts)
    places = (re.findall(r"[\w./-]+", line) for text in texts for line in _ENVIRONMENT.findall(text))
    made = {place.rstrip("/").rpartition("/")[2] for found in places for place in found if place[0] != "-"}
    return frozenset(made.union(*(_TARGET.findall(line) for text in texts for line in _MAKE.findall(text))))


def names_made(texts: Iterable[str]) -> frozenset[str]:
    """The names of files and folders that commands in the task's test files write."""
    texts = list(texts)
    lines = (line for text in texts for use in _WRITES for line in use.findall(text))
    places = (place for line in lines for place in re.findall(r"[\w./-]+", line) if place[0] != "-")
    return environments_of(texts).union(place.rstrip("/").rpartition("/")[2] for place in places)


def names_installed(texts: Iterable[str]) -> frozenset[str]:
    """The words of commands in the task's test files that install packages."""
    return words_of(line for text in texts for line in _INSTALLS.findall(text))


def made(
    change: Change, family: str, severity: Severity, detail: str, *, restored: bool, otherwise: str = "left"
) -> Finding:
    """What a rule found of a change; when it is not put back, `otherwise` says what is done about it."""
    action = "restored" if restored else otherwise
    return Finding(change.path, family, severity, action, detail)  # type: ignore[arg-type]
