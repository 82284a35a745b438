"""How a command ended: what the engine says of it, and what that comes to as an exit code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchflow.sandbox.docker.place import Init

_ADOPTER_FAILED = re.compile(rb"ERROR \(catatonit:\d+\): failed to exec pid1: (.*)")


@dataclass(frozen=True, slots=True)
class Look:
    """What the engine says of an exec. `pid` is 0 for one that never started (and, with Podman, that has ended)."""

    running: bool
    ended: bool
    code: int
    pid: int


def exit_code(look: Look, init: Init, *, podman: bool, refused: bool, stderr: bytes) -> int:
    """The code of an ended command, from the engine's and from the first words on its stderr.

    A command that was not found is 127 and one that could not be started otherwise 126, whoever noticed.
    """
    if refused or (podman and look.code in {125, 126, 127} and stderr.startswith(b"Error: ") and b"OCI" in stderr):
        missing = b"executable file not found" in stderr and not init.kind
        return 127 if missing else 126
    if init.kind == "catatonit" and look.code == 1 and (match := _ADOPTER_FAILED.match(stderr)):
        return 127 if match[1] == b"No such file or directory" else 126
    return look.code
