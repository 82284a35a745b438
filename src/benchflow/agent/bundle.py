"""Bundles: an agent with its runtime, built once, mounted read-only in every sandbox.

A bundle is a folder `<agent>-<version>-<libc>-<arch>-<digest>` in our cache; the digest is of everything that decides
its content, so a bundle that exists is right and is never changed. It is relocatable: inside a sandbox it lies under
`MOUNT_ROOT` with the same name, beside the runtime it may share with others. Anyone may read it, nobody writes to it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.agent import store
from benchflow.agent.node import NODE_VERSION, build_node, build_npm
from benchflow.agent.platforms import Platform, host_platform
from benchflow.agent.python_env import build_python
from benchflow.agent.tools import cache_folder
from benchflow.agent.workshop import build_inside
from benchflow.errors import AgentInstallError
from benchflow.sandbox.base import Mount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchflow.agent.process import Log
    from benchflow.agent.spec import AgentSpec, Install
    from benchflow.agent.workshop import Workshop

MOUNT_ROOT = "/opt/benchflow/agents"
"""Where bundles are in a sandbox."""

INSTALL_TIMEOUT = 1800.0
"""Seconds one agent may take to install, the wait for another process that does it included."""

OUR_FILES = Path(__file__).with_name("files")
"""Files of ours that a bundle may contain (`install.files`)."""

_RECIPE = 1
"""Raised when bundles are built differently, so that older ones are not taken for new ones."""

_IN_IMAGES = ("/usr/", "/bin/", "/sbin/", "/lib", "/opt/", "/etc/")


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a sandbox needs to run an agent.

    `argv` starts it inside the sandbox and `before` its services; their templates are not filled in yet.
    `path_dirs` are folders its PATH must have, after the image's own. A backend without mounts puts each mount's
    source at its target instead.
    """

    argv: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = ()
    path_dirs: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()


def bundle_root() -> Path:
    return cache_folder() / "agents"


def bundle_name(spec: AgentSpec, platform: Platform) -> str:
    """The name of the agent's bundle: the same for the same content on the same kind of machine, else another."""
    ours = {name: hashlib.sha256((OUR_FILES / name).read_bytes()).hexdigest() for name in spec.install.files}
    # Defaults are left out, so that a new key in the format does not make every bundle another one.
    content = {"install": spec.install.model_dump(mode="json", exclude_defaults=True), "files": ours}
    return _name(spec.name, spec.version, platform, content)


async def ensure_bundle(
    spec: AgentSpec,
    *,
    platform: Platform | None = None,
    workshop: Workshop | None = None,
    root: Path | None = None,
    log: Log = lambda _: None,
    timeout: float = INSTALL_TIMEOUT,
) -> Bundle:
    """The bundle of `spec` for `platform` (default: this machine's), built if it is not there yet.

    When it exists this costs a look at the file system. What cannot be built on this machine is built in a sandbox that
    `workshop` makes. `log` gets a line for each thing that is done. Raises AgentInstallError when a command fails (with
    the end of its output), when the platform cannot be served, or when `timeout` seconds are over, and SandboxError
    when the workshop's sandbox fails; nothing is left of a build that failed.
    """
    site = _Site(platform or host_platform(), workshop, root or bundle_root(), log)
    try:
        async with asyncio.timeout(timeout):
            return await _ensure_bundle(spec, site)
    except TimeoutError:
        raise AgentInstallError(
            f"{spec.ref} {spec.version} was not installed within {timeout:g} s",
            hint="try again: what was downloaded is kept by npm and uv",
        ) from None
    except AgentInstallError as error:
        raise AgentInstallError(f"{spec.ref} {spec.version}: {error.message}", hint=error.hint) from None


@dataclass(frozen=True, slots=True)
class _Site:
    """For which machine, by which means and where a bundle is built."""

    platform: Platform
    workshop: Workshop | None
    root: Path
    log: Log


async def _ensure_bundle(spec: AgentSpec, site: _Site) -> Bundle:
    mounts = await _ensure_mounts(spec, site)
    argv = _located(spec.launch.command, mounts)
    before = tuple(_located(service.command, mounts) for service in spec.launch.before)
    path_dirs = (f"{mounts[0].target}/bin",) if mounts and spec.launch.on_path else ()
    if spec.through is None:
        return Bundle(argv, before, path_dirs, mounts)
    outer = await _ensure_bundle(spec.through, site)
    shared = tuple(mount for mount in outer.mounts if mount not in mounts)
    return Bundle((*outer.argv, *argv), before, path_dirs, (*mounts, *shared))


async def _ensure_mounts(spec: AgentSpec, site: _Site) -> tuple[Mount, ...]:
    """The agent's own bundle first, then the runtime it shares."""
    install = spec.install
    if not install.packages:
        return _own_program(spec)
    runtime = (await _ensure_node(install.node, site.platform, site),) if install.node else ()

    async def build(folder: Path) -> None:
        site.log(f"installing {spec.name} {spec.version} for {site.platform}")
        for name in install.files:
            shutil.copy2(OUR_FILES / name, folder / name)
        if install.npm:
            npm = await _ensure_node(install.node or NODE_VERSION, host_platform(), site)
            beside = (*runtime, npm)[0].name
            await build_npm(folder, install, site.platform, runtime=beside, npm=npm, log=site.log)
        else:
            await _build_pypi(folder, install, site)

    own = await store.ensure(site.root, bundle_name(spec, site.platform), build)
    return tuple(Mount(path, f"{MOUNT_ROOT}/{path.name}") for path in (own, *runtime))


async def _build_pypi(folder: Path, install: Install, site: _Site) -> None:
    if site.platform == host_platform():
        await build_python(folder, install, site.log)
    elif site.workshop:
        await build_inside(folder, install, site.platform, site.workshop, site.log)
    else:
        raise AgentInstallError(
            f"a Python agent is built on a machine of its kind: this is {host_platform()}, not {site.platform}"
        )


async def _ensure_node(version: str, platform: Platform, site: _Site) -> Path:
    async def build(folder: Path) -> None:
        site.log(f"getting Node {version} for {platform}")
        await build_node(folder, version, platform, site.log)

    return await store.ensure(site.root, _name("node", version, platform, {}), build)


def _name(name: str, version: str, platform: Platform, content: object) -> str:
    text = json.dumps([_RECIPE, content], sort_keys=True)
    return f"{name}-{version}-{platform}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _located(command: Sequence[str], mounts: Sequence[Mount]) -> tuple[str, ...]:
    """The command as the sandbox finds it: in the agent's bundle if that has it, else by its name."""
    for mount in mounts[:1]:
        if mount.source == Path(command[0]):
            return (mount.target, *command[1:])
        if (mount.source / "bin" / command[0]).is_file():
            return (f"{mount.target}/bin/{command[0]}", *command[1:])
    return tuple(command)


def _own_program(spec: AgentSpec) -> tuple[Mount, ...]:
    """A program of the user's own on this machine goes along; one in a system folder is meant to be the image's."""
    program = Path(spec.launch.command[0]) if spec.launch.command else Path()
    if not program.is_absolute() or str(program).startswith(_IN_IMAGES) or not program.is_file():
        return ()
    digest = hashlib.sha256(str(program).encode()).hexdigest()[:12]
    return (Mount(program, f"{MOUNT_ROOT}/{spec.name}-{digest}/{program.name}"),)
