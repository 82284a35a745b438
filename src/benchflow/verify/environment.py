"""The environment that a verifier's script starts with: from the image's and the task's configuration, and ours.

Pure: names and values in, names and values out. A value of "" is how a variable of the image is taken away, because a
command's environment is laid over the image's. What the task says in `[verifier].env` wins over everything here.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from benchflow.sandbox.base import DEFAULT_PATH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCRATCH = "/run/benchflow-verifier"
"""Where the verifier's own home, temporary files and helpers are."""

PYTHON_GUARD = f"{SCRATCH}/python"
SYSTEM_PATH = tuple(DEFAULT_PATH.split(":"))
HELPERS = {"PATH": DEFAULT_PATH, "LD_PRELOAD": "", "LD_LIBRARY_PATH": "", "ENV": ""}
"""For commands of our own: nothing of the image's leads them where the agent writes."""

OPEN_TO_ALL = ("/tmp", "/var/tmp", "/dev/shm", "/home", "/logs")  # noqa: S108 - named to be distrusted

_OBEYED = re.compile(
    r"BASH_ENV|ENV|INPUTRC|LD_PRELOAD|LD_AUDIT|LOCPATH|GCONV_PATH|TERMINFO(?:_DIRS)?|LESS(?:OPEN|CLOSE|KEY)"
    r"|(?:MAN)?PAGER|EDITOR|VISUAL|BROWSER|CURL_HOME|WGETRC|OPENSSL_\w+|XDG_\w+|MAKEFILES|GIT_\w+|PYTHON\w+"
    r"|PIP_\w+|UV_\w+|COVERAGE_\w+|PYLINT\w+|MYPY\w+|MPLCONFIGDIR|MATPLOTLIBRC|IPYTHONDIR|JUPYTER_\w+"
    r"|NUMBA_CACHE_DIR|NODE_OPTIONS|(?i:NPM_CONFIG)_\w+|PERL5OPT|PERL5DB|RUBYOPT|GEMRC|BUNDLE_(?:APP|USER)_CONFIG"
    r"|R_PROFILE\w*|R_ENVIRON\w*|PHPRC|PHP_INI_SCAN_DIR|LUA_INIT\w*|GO(?:ENV|FLAGS|CACHE)|RUSTC_WRAPPER"
    r"|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|MAVEN_(?:OPTS|ARGS)|GRADLE_(?:OPTS|USER_HOME)"
)
"""What names a file that a tool runs, obeys or takes for its own work; not what a program of the task goes by."""

_OF_THE_TASK = re.compile(
    r"PYTHONPATH|GIT_(?:DIR|WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|CEILING_DIRECTORIES)|PIP_(?:TARGET|PREFIX)"
    r"|UV_(?:PROJECT|PROJECT_ENVIRONMENT|WORKING_DIRECTORY|PYTHON)"
)
"""Of those, where the task has its repository and its packages."""

_INSTEAD = {"UV_CACHE_DIR": f"{SCRATCH}/home/.cache/uv", "UV_CONFIG_FILE": "/dev/null"}
"""For a tool that does not take an empty value for none."""

_ALWAYS_EMPTY = (
    *("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX"),
    *("PYTHONINSPECT", "PYTHONBREAKPOINT", "CDPATH"),
)
_SEARCHED = ("LD_LIBRARY_PATH", "NODE_PATH", "PERL5LIB", "RUBYLIB")

# A repository of the workspace belongs to the agent and is read by root: git must not refuse it, nor obey it.
_GIT = (
    ("safe.directory", "*"),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("core.sshCommand", "ssh"),
    ("core.editor", "true"),
    ("credential.helper", ""),
    ("core.hooksPath", "/dev/null"),
)


@dataclass(frozen=True, slots=True)
class Modules:
    """What Python has to know of modules. `added` are the names of those that the agent added, `own` of those that the
    image has at the top of the workspace, `packages` the paths (without a suffix) of those that it added among the
    packages of the workspace, `paths` the folders that it told Python to look into.
    """

    added: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    packages: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()


def guard_files(modules: Modules, *, beside_agent: bool = False) -> dict[str, bytes]:
    """What goes into `PYTHON_GUARD`. Beside processes of the agent, any name but those of the image's own modules may
    be one that it adds in the next moment.
    """
    names = ["*", *(f"!{name}" for name in sorted(modules.own))] if beside_agent else sorted(modules.added)
    lists = {"names": names, "paths": sorted(modules.paths), "packages": sorted(modules.packages)}
    texts = {name: "\n".join(lines).encode("utf-8", "surrogateescape") for name, lines in lists.items()}
    return {"sitecustomize.py": _guard(), **texts}


@cache
def _guard() -> bytes:
    return files("benchflow.verify").joinpath("inside", "sitecustomize.py").read_bytes()


def bare_environment() -> dict[str, str]:
    """For a task that wants no more than a home and a place for temporary files of its own."""
    return {"HOME": f"{SCRATCH}/home", "TMPDIR": f"{SCRATCH}/scratch"}


def verifier_environment(
    image: Mapping[str, str], *, writable: Sequence[str], beside_agent: bool = False, git_hooks: bool = False
) -> dict[str, str]:
    """What is laid over the image's environment.

    `writable` are folders that the agent could write. A folder of PATH in one of them keeps its place, because what it
    holds is put back to the image's state; where the agent's processes live on beside the verifier, it comes last.
    """
    empty = {name: "" for name in _ALWAYS_EMPTY if image.get(name)}
    empty |= {
        name: _INSTEAD.get(name, "")
        for name, value in image.items()
        if _OBEYED.fullmatch(name) and not _OF_THE_TASK.fullmatch(name) and _mentions(value, writable)
    }
    searched = {
        name: ":".join(entry for entry in image[name].split(":") if entry and not _within(entry, writable))
        for name in _SEARCHED
        if image.get(name)
    }
    # What the image names here stays: the guard has it searched after all that is installed.
    modules = [entry for entry in image.get("PYTHONPATH", "").split(":") if entry.startswith("/")]
    return {
        **empty,
        **searched,
        **bare_environment(),
        "PATH": ":".join(search_path(image.get("PATH", ""), writable, last=beside_agent)),
        "PYTHONPATH": ":".join([PYTHON_GUARD, *modules]),
        "PYTHONNOUSERSITE": "1",
        "UV_NO_CONFIG": "1",
        **_git_variables(keep_hooks=git_hooks),
    }


def search_path(path: str, writable: Sequence[str] = (), *, last: bool = False) -> list[str]:
    """The absolute folders of an image's PATH, the system's added; with `last`, writable ones after all others."""
    named = [entry.rstrip("/") or "/" for entry in path.split(":") if entry.startswith("/")]
    found = list(dict.fromkeys([*named, *SYSTEM_PATH]))
    if not last:
        return found
    return sorted(found, key=lambda entry: _within(entry, writable))


def git_config(*, keep_hooks: bool) -> bytes:
    """The same for the verifier's home: git hands no variable on to what it starts in another repository."""
    parts = ((*key.split("."), value) for key, value in _git_settings(keep_hooks=keep_hooks))
    return "".join(f'[{section}]\n\t{name} = "{value}"\n' for section, name, value in parts).encode()


def _git_settings(*, keep_hooks: bool) -> tuple[tuple[str, str], ...]:
    return _GIT[:-1] if keep_hooks else _GIT


def _git_variables(*, keep_hooks: bool) -> dict[str, str]:
    settings = _git_settings(keep_hooks=keep_hooks)
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _within(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def _mentions(value: str, folders: Sequence[str]) -> bool:
    """Whether a path in one of the folders is a part of the value, or one that starts where the program is started.

    An address is no path, and a property given to Java is read by nobody but the program that knows it.
    """
    words = (word.strip("'\"") for word in re.split(r"[\s=:,;]+", re.sub(r"https?://\S+|(?<!\S)-D\S+", " ", value)))
    return any(
        word.startswith(("./", "../")) or ("/" in word and _within(_plain(word), folders)) for word in words if word
    )


def _plain(word: str) -> str:
    """The absolute path that a word ends with, in its shortest form."""
    return posixpath.normpath("/" + word.partition("/")[2].lstrip("/"))
