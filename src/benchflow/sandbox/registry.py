"""Which backends there are, by name, and which one to take when nobody says.

A backend is imported when it is first asked for and made once per event loop: backends are shared, and hold what is
worth sharing (connections, the zygote). `backends_in_use` closes them when the last of several users has left. Others
add theirs through the entry point group `benchflow.sandboxes` (name -> callable without arguments that returns a
`Backend`); a built-in name cannot be taken over.
"""

from __future__ import annotations

import asyncio
import difflib
import importlib
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from benchflow.errors import ConfigError, SandboxUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from importlib.metadata import EntryPoint

    from benchflow.sandbox.base import Backend

BUILTIN: Mapping[str, str] = {
    "docker": "benchflow.sandbox.docker.backend:DockerBackend",
    "local": "benchflow.sandbox.local.backend:LocalBackend",
}
"""Name -> where the backend is made, as `module:callable`."""

ALIASES: Mapping[str, str] = {"embedded": "local"}
"""Other names for the same backends."""

NOT_BUILT = ("daytona", "modal", "e2b", "kubernetes", "k8s", "runloop", "singularity", "apptainer", "gke")
"""Backends that other systems have and users ask for by name."""

ENTRY_POINTS = "benchflow.sandboxes"

AUTO = "auto"
AUTO_ORDER = ("docker", "local")
"""What `auto` tries, in this order."""

CHECK_TIMEOUT = 20.0
"""Seconds a backend gets to answer whether it can work here, when `auto` asks it."""


@dataclass(slots=True)
class _Made:
    """The backends of one event loop, and how many are inside `backends_in_use`."""

    backends: dict[str, Backend] = field(default_factory=dict)
    users: int = 0


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Made] = WeakKeyDictionary()
_outside = _Made()


def backend_names() -> tuple[str, ...]:
    """Every backend that can be asked for by name: the built-in ones first, then those of installed packages."""
    return (*BUILTIN, *sorted(set(_installed()) - set(BUILTIN)))


def get_backend(name: str) -> Backend:
    """The backend of that name, the same one in all of an event loop. Raises ConfigError for a name nobody has."""
    key = ALIASES.get(name, name)
    made = _here().backends
    if key not in made:
        made[key] = _factory(key)()
    return made[key]


async def choose_backend(name: str = AUTO) -> tuple[Backend, str]:
    """The backend to use and a sentence that says which and why, to be shown to the user.

    A named backend must work here, else SandboxUnavailable. `auto` takes Docker when its engine answers, else local;
    when neither works, SandboxUnavailable says what is wrong with each.
    """
    if ALIASES.get(name, name) != AUTO:
        backend = get_backend(name)
        await backend.check()
        return backend, f"sandbox: {backend.name}"
    refusals: list[SandboxUnavailable] = []
    for candidate in AUTO_ORDER:
        backend = get_backend(candidate)
        try:
            await _check(backend)
        except SandboxUnavailable as error:
            refusals.append(error)
            continue
        return backend, _reason(backend.name, refusals)
    raise SandboxUnavailable(
        "no sandbox can be made on this machine\n" + "\n".join(f"  {_indented(error)}" for error in refusals),
        backend=AUTO,
        hint="mend one of them, then: bench doctor",
    )


async def close_backends() -> None:
    """Close every backend that was made; each is made anew when it is next asked for."""
    made = _here().backends
    backends = list(made.values())
    made.clear()
    async with asyncio.TaskGroup() as group:
        for backend in backends:
            group.create_task(backend.close())


@asynccontextmanager
async def backends_in_use() -> AsyncIterator[None]:
    """Backends made inside stay until the last one leaves, which closes them."""
    here = _here()
    here.users += 1
    try:
        yield
    finally:
        here.users -= 1
        if not here.users:
            await close_backends()


def _here() -> _Made:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return _outside
    return _by_loop.setdefault(loop, _Made())


async def _check(backend: Backend) -> None:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT):
            await backend.check()
    except TimeoutError:
        raise SandboxUnavailable(f"no answer within {CHECK_TIMEOUT:g} s", backend=backend.name, phase="check") from None


def _reason(name: str, refusals: list[SandboxUnavailable]) -> str:
    if not refusals:
        return f"sandbox: {name} (chosen by auto)"
    return f"sandbox: {name} (chosen by auto; {'; '.join(error.message for error in refusals)})"


def _indented(error: SandboxUnavailable) -> str:
    return str(error).replace("\n", "\n  ")


def _factory(name: str) -> Callable[[], Backend]:
    if home := BUILTIN.get(name):
        module, _, attribute = home.partition(":")
        factory: Callable[[], Backend] = getattr(importlib.import_module(module), attribute)
        return factory
    if point := _installed().get(name):
        return _load(point)
    raise _unknown(name)


def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _load(point: EntryPoint) -> Callable[[], Backend]:
    try:
        factory: Callable[[], Backend] = point.load()
    except Exception as error:
        package = point.dist.name if point.dist else "a package"
        raise ConfigError(
            f"the sandbox backend {point.name!r} of {package} cannot be loaded from {point.value}: {error}",
            hint=f"reinstall or remove {package}",
        ) from error
    return factory


def _unknown(name: str) -> ConfigError:
    known = backend_names()
    listed = ", ".join((*known, AUTO))
    if name in NOT_BUILT:
        return ConfigError(f"this release has no sandbox backend {name!r}; it has {listed}", hint="--sandbox auto")
    if name == "podman":
        return ConfigError(
            f"podman is not a sandbox backend of its own; there are {listed}",
            hint="podman system service, then DOCKER_HOST=unix:///run/podman/podman.sock and --sandbox docker",
        )
    near = difflib.get_close_matches(name, (*known, AUTO, *ALIASES), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"one of: {listed}"
    return ConfigError(f"no sandbox backend is called {name!r}; there are {listed}", hint=hint)
