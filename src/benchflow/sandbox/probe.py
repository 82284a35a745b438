"""One finding about this machine, as `bench doctor` shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """`detail` says what was found; `fix` is the command that mends it, where there is one."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
