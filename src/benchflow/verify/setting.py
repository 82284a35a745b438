"""What the rules about changes need to know of the task and its sandbox, and how a rule says what it found."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchflow.verify.evidence import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchflow.sandbox.base import Change
    from benchflow.verify.evidence import Severity

_SHELL_USE = re.compile(r"bash\s+(?:-\w*[li]|--login)|/etc/profile|\.bashrc|\bsu\s+-")


@dataclass(frozen=True, slots=True)
class Setting:
    """What the rules need to know. `words` are all words in the task's own test files, `asked` those of its
    instruction, `test_files` the names of the test files.

    `copied` says that everything which differs was carried over from the agent's sandbox, whoever owns it now; `live`,
    that processes of the agent go on beside the verifier.
    """

    workdir: str
    env: Mapping[str, str] = field(default_factory=dict)
    root: bool = False
    copied: bool = False
    live: bool = False
    words: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    test_files: frozenset[str] = frozenset()
    login_shell: bool = False
    clean_conftests: bool = True
    remove_hooks: bool = True
    restore_files: bool = True
    git_hooks: bool = False

    def in_workspace(self, path: str) -> bool:
        return self.workdir != "/" and path.startswith(f"{self.workdir.rstrip('/')}/")

    def writes(self, change: Change) -> bool:
        """Whether the agent could have made this change: what belongs to root alone, a plain user could not.

        The owner of what was deleted is the image's word; the workspace was the agent's all the same.
        """
        if change.kind == "deleted" and self.in_workspace(change.path):
            return True
        return self.root or self.copied or change.uid != 0 or (change.type != "link" and bool(change.mode & 0o022))


def words_of(texts: Iterable[str]) -> frozenset[str]:
    """Every word in the task's test files that could name a program or a module."""
    return frozenset(word for text in texts for word in re.findall(r"[A-Za-z0-9_.+\[-]+", text))


def wants_login_shell(texts: Iterable[str]) -> bool:
    """Whether the task's test files start shells that read start-up files."""
    return any(_SHELL_USE.search(text) for text in texts)


def made(
    change: Change, family: str, severity: Severity, detail: str, *, restored: bool, otherwise: str = "left"
) -> Finding:
    action = "restored" if restored else otherwise
    return Finding(change.path, family, severity, action, detail)  # type: ignore[arg-type]
