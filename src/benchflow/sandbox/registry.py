"""Which backends there are, by name, and which one to take when nobody says.

A backend is imported when it is first asked for and made once per process: backends are shared, and hold what is
worth sharing (connections, the zygote). Others add theirs through the entry point group `benchflow.sandboxes`
(name -> callable without arguments that returns a `Backend`); a built-in name cannot be taken over.
"""

from __future__ import annotations

import asyncio
import difflib
import importlib
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError, SandboxUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
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

_made: dict[str, Backend] = {}


def backend_names() -> tuple[str, ...]:
    """Every backend that can be asked for by name: the built-in ones first, then those of installed packages."""
    return (*BUILTIN, *sorted(set(_installed()) - set(BUILTIN)))


def get_backend(name: str) -> Backend:
    """The backend of that name, the same one for the whole process. Raises ConfigError for a name nobody has."""
    key = ALIASES.get(name, name)
    if key not in _made:
        _made[key] = _factory(key)()
    return _made[key]


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
    backends = list(_made.values())
    _made.clear()
    async with asyncio.TaskGroup() as group:
        for backend in backends:
            group.create_task(backend.close())


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
