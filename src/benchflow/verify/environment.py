"""The environment that a verifier's script starts with: from the image's and the task's configuration, and ours.

Pure: names and values in, names and values out. A value of "" is how a variable of the image is taken away, because a
command's environment is laid over the image's. What the task says in `[verifier].env` wins over everything here.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SCRATCH = "/run/benchflow-verifier"
"""Where the verifier's own home, temporary files and helpers are."""

PYTHON_GUARD = f"{SCRATCH}/python"
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
OPEN_TO_ALL = ("/tmp", "/var/tmp", "/dev/shm", "/home", "/logs")  # noqa: S108 - named to be distrusted

_STARTUP = (
    *("BASH_ENV", "ENV", "PYTHONSTARTUP", "PYTHONHOME", "LD_PRELOAD", "LD_AUDIT", "CURL_HOME", "NODE_OPTIONS"),
    *("PERL5OPT", "RUBYOPT", "GIT_CONFIG_GLOBAL", "GIT_EXEC_PATH", "PIP_CONFIG_FILE", "UV_CONFIG_FILE"),
)
"""What names a file that a program runs or obeys as it starts."""

_ALWAYS_EMPTY = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONUSERBASE", "PYTHONINSPECT", "PYTHONBREAKPOINT", "CDPATH")
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


def guard_files(
    new_modules: Iterable[str] = (), new_paths: Iterable[str] = (), *, beside_agent: bool = False
) -> dict[str, bytes]:
    """What goes into `PYTHON_GUARD`: names of modules, and places to look for some, that the agent added. Beside
    processes of the agent, any name may be one that it adds in the next moment.
    """
    return {
        "sitecustomize.py": _guard(),
        "names": "\n".join(["*"] if beside_agent else sorted(new_modules)).encode(),
        "paths": "\n".join(sorted(new_paths)).encode("utf-8", "surrogateescape"),
    }


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
    empty |= {name: "" for name in _STARTUP if _mentions(image.get(name, ""), writable)}
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


def _git_variables(*, keep_hooks: bool) -> dict[str, str]:
    settings = _GIT[:-1] if keep_hooks else _GIT
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _within(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def _mentions(value: str, folders: Sequence[str]) -> bool:
    return any(_within(word, folders) for word in value.replace("=", " ").replace(":", " ").split())
