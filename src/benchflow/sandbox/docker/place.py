"""Where commands run and files lie: one started container, the ways into it, and whose errors are whose."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import aiodocker
import aiohttp

from benchflow.errors import SandboxError, SandboxGone
from benchflow.sandbox.archive import ArchiveError
from benchflow.sandbox.docker.engine import CALL_TIMEOUT, Engine, translate
from benchflow.sandbox.docker.sockets import BACKEND

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from benchflow.sandbox.docker.inside import Inside


@dataclass(frozen=True, slots=True)
class Init:
    """The init program that the engine mounts into containers; `kind` empty means there is none that can be used."""

    path: str = ""
    kind: Literal["tini", "catatonit", ""] = ""

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """The command with an adopter of orphans above it."""
        if not self.kind:
            return list(argv)
        return [self.path, *(["-s"] if self.kind == "tini" else []), "--", *argv]


@dataclass(frozen=True, slots=True)
class Place:
    """One started container of the sandbox `sandbox`. `gone` says whether that is being stopped."""

    engine: Engine
    sandbox: str
    container: str
    inside: Inside
    init: Init
    gone: Callable[[], bool]

    def vanished(self, phase: str) -> SandboxGone:
        return SandboxGone("the sandbox was stopped or died", backend=BACKEND, sandbox=self.sandbox, phase=phase)

    def error(self, message: str, phase: str) -> SandboxError:
        return SandboxError(message, backend=BACKEND, sandbox=self.sandbox, phase=phase)

    @asynccontextmanager
    async def guard(self, phase: str, timeout: float | None = CALL_TIMEOUT) -> AsyncIterator[None]:
        """Makes SandboxErrors of what the engine, the kernel and an archive raise; FileNotFoundError passes.

        While the sandbox is being stopped all of them are SandboxGone.
        """
        try:
            async with asyncio.timeout(timeout):
                yield
        except FileNotFoundError:
            if self.gone():
                raise self.vanished(phase) from None
            raise
        except (SandboxError, aiodocker.DockerError, aiohttp.ClientError, ArchiveError, OSError) as error:
            if self.gone() or isinstance(error, ProcessLookupError):
                raise self.vanished(phase) from error
            if isinstance(error, SandboxError):
                raise
            if isinstance(error, aiodocker.DockerError):
                raise translate(error, self.sandbox, phase) from error
            if isinstance(error, TimeoutError) and not str(error):
                raise self.error(f"not done within {timeout:g} s", phase) from error
            raise self.error(str(error) or type(error).__name__, phase) from error
