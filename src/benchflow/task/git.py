"""Running git: one place that starts it, so that it never prompts, never hangs on, and never shows a credential.

A credential reaches git through its environment alone, as a rewrite of the clean URL; it is in no argument, in no file,
and is masked in whatever git says. Hooks, line-ending conversion and transports that run programs are switched off.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.task.repo import SCHEMES, mask, secrets_of

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.task.repo import Repo

_CONFIG = {
    "core.hooksPath": os.devnull,
    "core.autocrlf": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
# What git itself calls local: set when we are called from a hook, it would point git at another repository.
_LOCAL_VARIABLES = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_CONFIG",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_NO_REPLACE_OBJECTS",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)
_OFFLINE = ("could not resolve host", "failed to connect", "network is unreachable", "connection timed out")
_ABSENT = ("not found", "does not exist", "does not appear to be a git", "no such file", "not a git repository")
_DENIED = (
    *("could not read username", "authentication failed", "permission denied", "terminal prompts disabled"),
    "returned error: 403",
)


class GitError(ConfigError):
    """git failed; the message holds its own words, without credentials."""

    def __init__(self, message: str, *, words: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.words = words


async def run_git(repo: Repo, *args: str, folder: Path | None = None) -> str:
    """The output of one git command for `repo`, run in `folder`. Cancelling kills it and everything it started.

    Raises GitError when git fails or is not installed.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            "git",
            *args,
            cwd=folder,
            env=git_environment(repo, os.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # without a terminal neither git nor ssh can ask anything
        )
    except FileNotFoundError as error:
        raise GitError(
            f"git is needed to fetch {repo.url}, and is not installed", hint="apt-get install git"
        ) from error
    try:
        stdout, stderr = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        raise _failure(repo, args[0], process.returncode, stderr.decode(errors="replace"))
    return os.fsdecode(stdout)


def git_environment(repo: Repo, base: os._Environ[str] | dict[str, str]) -> dict[str, str]:
    """The environment git runs in: `base` with what must not vary fixed, and the credential of `repo` as a rewrite."""
    env = {name: value for name, value in base.items() if name not in _LOCAL_VARIABLES}
    settings = list(_CONFIG.items())
    if repo.secret_url != repo.url:
        settings.append((f"url.{repo.secret_url}.insteadOf", repo.url))
    given = env.get("GIT_CONFIG_COUNT", "0")
    first = int(given) if given.isdigit() else 0
    for index, (key, value) in enumerate(settings, first):
        env[f"GIT_CONFIG_KEY_{index}"] = key
        env[f"GIT_CONFIG_VALUE_{index}"] = value
    env["GIT_CONFIG_COUNT"] = str(first + len(settings))
    env["GIT_TERMINAL_PROMPT"] = "0"
    env["GIT_ALLOW_PROTOCOL"] = ":".join(SCHEMES)
    env["LC_ALL"] = "C"
    return env


def _failure(repo: Repo, command: str, code: int, stderr: str) -> GitError:
    for secret in secrets_of(repo):
        stderr = stderr.replace(secret, "***")
    lines = [line.strip() for line in mask(stderr).splitlines() if line.strip()]
    words = "\n".join(line for line in lines if not line.startswith(("hint:", "warning:"))) or f"exit code {code}"
    quoted = "\n".join(f"  | {line}" for line in words.splitlines()[-8:])
    return GitError(f"cannot fetch {repo.url} (git {command}):\n{quoted}", words=words, hint=_hint(words.lower()))


def _hint(words: str) -> str | None:
    if any(sign in words for sign in _OFFLINE):
        return (
            "check the network; a source that was fetched before is used offline when its full commit hash is the ref"
        )
    if any(sign in words for sign in _DENIED):
        return "check the name; for a private repository, log git in first (a credential helper, or ssh)"
    if any(sign in words for sign in _ABSENT):
        return "check the spelling of the repository, and that you may read it"
    return None
