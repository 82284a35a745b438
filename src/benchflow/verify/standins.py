"""What an agent put where the verifier will put, or look for, something of its own. Pure rules.

A verifier often copies its tests into the workspace, makes files beside them, and runs tools there that obey what lies
in the current folder. What stands in the place of any of these has no other use, unless the task speaks of it: its
instruction, or, for the configuration of tools, its tests.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from benchflow.verify.environment import search_path
from benchflow.verify.setting import made

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.sandbox.base import Change
    from benchflow.verify.evidence import Finding
    from benchflow.verify.seen import Seen
    from benchflow.verify.setting import Setting

OBEYED: dict[str, tuple[str, ...]] = {
    "npm": (".npmrc",),
    "npx": (".npmrc",),
    "yarn": (".yarnrc", ".yarnrc.yml"),
    "pnpm": (".npmrc", ".pnpmfile.cjs"),
    "coverage": (".coveragerc",),
    "--cov": (".coveragerc",),
    "mypy": ("mypy.ini", ".mypy.ini"),
    "pylint": (".pylintrc", "pylintrc", ".pylintrc.toml", "pylintrc.toml"),
    "flake8": (".flake8",),
    "rspec": (".rspec",),
    "Rscript": (".Rprofile", ".Renviron"),
    "octave": (".octaverc",),
    "gdb": (".gdbinit",),
    "latexmk": (".latexmkrc", "latexmkrc"),
    "mocha": (".mocharc.js", ".mocharc.cjs", ".mocharc.json", ".mocharc.yml", ".mocharc.yaml", ".mocharc.jsonc"),
    "jest": ("jest.config.js", "jest.config.cjs", "jest.config.mjs", "jest.config.json", "jest.config.ts"),
    "eslint": (".eslintrc.js", ".eslintrc.cjs", "eslint.config.js", "eslint.config.cjs", "eslint.config.mjs"),
}
"""Programs, by the word that starts them, and the files by which a folder makes them run something else."""

_SECTIONS = {"coverage": "coverage:run", "--cov": "coverage:run", "mypy": "mypy", "pylint": "pylint.master"}
_TABLES = {"coverage": "tool.coverage", "--cov": "tool.coverage", "mypy": "tool.mypy", "pylint": "tool.pylint"}
_UV_TABLES = ("build-system", "tool.uv")

_TEST = re.compile(r"(?:test_.*|.*_tests?|conftest)")
_PRECEDENCE = {"makefile": "Makefile", "GNUmakefile": "Makefile"}
_OPTION = re.compile(r"-{1,2}[A-Za-z][\w-]*=.*", re.DOTALL)
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - named to be distrusted
_HELPERS = frozenset(
    {"lsb_release", "rustc", "cargo", "cc", "gcc", "g++", "c++", "ld", "ar", "make", "cmake", "ninja", "pkg-config"}
    | {"git", "hg", "svn", "ldd", "getconf", "uname", "sudo"}
)
_NODE_PROGRAMS = "/node_modules/.bin"
_ROOT_HOME = re.compile(r"/root/(?:\.local/lib/python[^/]*/.*|\.(?!local/|cache/)[^/]*|\.config/(?:git|pip|uv)/.*)")


def stands_in(change: Change, setting: Setting, seen: Seen) -> Finding | None:
    """What is in the place of a file that the tests bring or make."""
    if change.kind not in ("added", "modified"):
        return None
    folder, name = posixpath.split(change.path)
    detail = ""
    if not setting.in_workspace(change.path):
        if folder in _TEMPORARY and name in setting.makes and name not in setting.asked:
            detail = "a name that the tests use for a file of their own"
    elif setting.workdir == "/root" and _ROOT_HOME.fullmatch(change.path) and name not in setting.asked:
        detail = "obeyed by programs of root, whose home this is"
    elif _OPTION.fullmatch(name):
        detail = "would be taken for an option"
    elif change.kind == "added":
        detail = _in_workspace(change, folder, name, setting, seen)
    if not detail and change.type == "link" and change.path in seen.above:
        detail = "leads programs or modules of the image elsewhere"
    if not detail:
        return None
    return made(change, "stand-in", "warning", detail, restored=setting.remove_hooks)


def questions(change: Change, setting: Setting) -> Iterator[str]:
    """Paths of which it has to be known whether the image ships them."""
    folder, name = posixpath.split(change.path)
    if change.kind == "added" and folder.endswith(_NODE_PROGRAMS):
        yield from _places(name, setting)


def _places(name: str, setting: Setting) -> list[str]:
    return [f"{folder}/{name}" for folder in search_path(setting.env.get("PATH", ""))]


def _elsewhere(name: str, setting: Setting, seen: Seen) -> bool:
    """Whether the image has a program of this name where programs are looked for."""
    return not seen.shipped.isdisjoint(_places(name, setting))


def _could_be_run(folder: str, name: str, setting: Setting, seen: Seen) -> bool:
    """Whether an added program is one that tools which install packages run by themselves, where they find it."""
    return bool(setting.installs) and folder in seen.programs and name in _HELPERS and name not in setting.asked


def _in_workspace(change: Change, folder: str, name: str, setting: Setting, seen: Seen) -> str:
    unasked = name not in setting.asked
    stem, _, suffix = name.partition(".")
    of_tests = {test.removesuffix(".py") for test in setting.test_files if test.endswith(".py")} | {"conftest"}
    imported = _TEST.fullmatch(stem) and suffix != "py" and (not suffix or suffix.endswith(("so", "pyc")))
    test_file = name in setting.test_files and (change.type == "file" or "." in name or name == "Makefile")
    at_top = folder == setting.workdir.rstrip("/")
    uv_alone = "uv" in setting.words and ".venv" not in setting.words
    cases = (
        (test_file and (change.type != "file" or folder.endswith("/tests")) and unasked, "in the place of a test file"),
        (stem in of_tests and imported, f"would be imported instead of {stem}.py"),
        (_PRECEDENCE.get(name) in setting.test_files and unasked, f"would be read instead of {_PRECEDENCE.get(name)}"),
        (name == ".venv" and uv_alone and unasked, "uv would run the programs in it"),
        (name in setting.environments and at_top and unasked, "in the place of what the tests make themselves"),
        (folder.endswith(_NODE_PROGRAMS) and _elsewhere(name, setting, seen), "would be run instead of the image's"),
        (_could_be_run(folder, name, setting, seen), "may be run by what installs packages"),
    )
    return next((detail for holds, detail in cases if holds), "")


def tool_sections(part: str, setting: Setting) -> list[str]:
    """The parts of a project's configuration that tools obey which the tests use."""
    known = {"pytest-ini": _SECTIONS, "pytest-toml": _TABLES}.get(part, {})
    found = [name for tool, name in known.items() if tool in setting.words and tool not in setting.asked]
    if part == "pytest-toml" and "uv" in setting.words and "pyproject.toml" not in setting.words | setting.asked:
        found += _UV_TABLES
    return list(dict.fromkeys(found))


def obeyed(change: Change, setting: Setting, _: Seen) -> Finding | None:
    """Configuration that makes a tool of the verifier's run what the agent likes."""
    name = posixpath.basename(change.path)
    if change.kind not in ("added", "modified") or not setting.in_workspace(change.path):
        return None
    if name in setting.words | setting.asked:
        return None
    for tool, names in OBEYED.items():
        if name in names and tool in setting.words and (name.startswith(".") or tool not in setting.asked):
            return made(change, "tool-configuration", "warning", f"obeyed by {tool}", restored=setting.remove_hooks)
    return None
