"""Agents from PyPI: a Python interpreter of their own with the packages installed into it.

A virtual environment points at an interpreter outside itself, which a sandbox does not have, so the bundle holds a
pruned copy of one: a stand-alone build where uv has or can fetch one, else the interpreter that runs us. The copy is
made by `python_bundle`, which the interpreter to be copied runs itself.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from benchflow.agent.process import run
from benchflow.agent.tools import find_uv
from benchflow.errors import AgentInstallError

if TYPE_CHECKING:
    from benchflow.agent.process import Log
    from benchflow.agent.spec import Install

SCRIPT = Path(__file__).with_name("python_bundle.py")
"""What copies an interpreter, run by that interpreter."""

_BINARY = "import sys; print(getattr(sys, '_base_executable', '') or sys.executable)"


async def build_python(folder: Path, install: Install, log: Log) -> None:
    """Put an interpreter with the packages into `folder`, its commands into `folder/bin`. Raises AgentInstallError."""
    uv = await find_uv(log)
    python = await _find_interpreter(uv, install.python, log)
    log(f"copying the Python of {python}")
    await run([python, "-I", str(SCRIPT), str(folder), uv, *install.pypi], cwd=folder, log=log)


async def _find_interpreter(uv: str, wanted: str, log: Log) -> str:
    """A stand-alone build (it runs on any image), else the interpreter that runs us, outside any environment."""
    find = [uv, "python", "find", "--managed-python", wanted]
    for command in (find, [uv, "python", "install", "--no-bin", wanted], find):
        try:
            printed = await run(command, cwd=Path("/"), log=_silent)
        except AgentInstallError:
            continue
        if command is find:
            return printed.splitlines()[-1]
    log("no stand-alone Python can be fetched here; a copy of this one is used")
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not SpecifierSet(wanted).contains(own):
        raise AgentInstallError(
            f"needs Python {wanted}; this is {own}, and no stand-alone build could be fetched",
            hint=f"run `uv python install '{wanted}'` once, or run benchflow with such a Python",
        )
    printed = await run([sys.executable, "-sEP", "-c", _BINARY], cwd=Path("/"), log=_silent)
    return printed.splitlines()[-1]


def _silent(_line: str) -> None:
    pass
