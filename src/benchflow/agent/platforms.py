"""For which machine a bundle is: the C library and the processor. A program built for one does not start on another."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from benchflow.errors import SandboxError

if TYPE_CHECKING:
    from benchflow.sandbox.base import Sandbox

Libc = Literal["glibc", "musl"]
Arch = Literal["x64", "arm64"]

_ARCHES: dict[str, Arch] = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_MACHINES: dict[Arch, str] = {"x64": "x86_64", "arm64": "aarch64"}

PROBE = (
    "uname -m; for f in /lib/libc.so.6 /lib64/libc.so.6 /usr/lib/libc.so.6 /lib/*/libc.so.6; do"
    ' [ -e "$f" ] && echo glibc && exit; done; for f in /lib/ld-musl-*; do [ -e "$f" ] && echo musl; done; true'
)
"""What a sandbox is asked, for `parse_probe`. glibc is looked for first: Debian's musl package adds musl's loader."""


@dataclass(frozen=True, slots=True)
class Platform:
    libc: Libc
    arch: Arch

    def __str__(self) -> str:
        return f"{self.libc}-{self.arch}"

    @property
    def triple(self) -> str:
        """The name uv knows it by."""
        return f"{_MACHINES[self.arch]}-unknown-linux-{'gnu' if self.libc == 'glibc' else 'musl'}"


@cache
def host_platform() -> Platform:
    """This machine. Raises ValueError for a processor that no bundle is made for."""
    libc: Libc = "glibc" if platform.libc_ver()[0] == "glibc" else "musl"
    return Platform(libc, _arch(platform.machine()))


async def sandbox_platform(sandbox: Sandbox) -> Platform:
    """The platform of a started sandbox, at the price of one exec. Raises SandboxError when it cannot be told."""
    done = await sandbox.exec(PROBE, user=0)
    try:
        return parse_probe(done.text)
    except ValueError as error:
        raise SandboxError(str(error), backend=sandbox.backend, sandbox=sandbox.id, phase="install agent") from error


def parse_probe(output: str) -> Platform:
    """The platform that `PROBE` printed. Raises ValueError for a processor that no bundle is made for."""
    machine, *found = output.split() or [""]
    return Platform("musl" if found == ["musl"] else "glibc", _arch(machine))


def _arch(machine: str) -> Arch:
    if machine.lower() not in _ARCHES:
        raise ValueError(f"no agent bundles for the processor {machine!r}; there are {', '.join(_ARCHES)}")
    return _ARCHES[machine.lower()]
