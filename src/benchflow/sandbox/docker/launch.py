"""Starting a command: the exec call, its streams, and the mark by which everything it starts is known."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from benchflow.errors import SandboxError
from benchflow.sandbox.docker import wire
from benchflow.sandbox.docker.output import glance
from benchflow.sandbox.docker.place import Init
from benchflow.sandbox.docker.process import Process
from benchflow.sandbox.docker.sockets import BACKEND
from benchflow.settle import finished_or_undone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchflow.sandbox.base import ExecResult
    from benchflow.sandbox.docker.place import Place

HELPER_TIMEOUT = 60.0
"""Seconds that a small command of our own inside may take."""

MARK = "BENCHFLOW_EXEC"
"""Variable that every command has in its environment, by which what it started is found."""


async def launch(
    place: Place,
    argv: Sequence[str],
    *,
    user: str,
    env: Mapping[str, str],
    cwd: str,
    stdin: bool,
) -> Process:
    """Start a command. Raises SandboxGone and SandboxError; what cannot be started is a Process that has failed."""
    words = [*argv, user, cwd, *(part for pair in env.items() for part in pair)]
    if problem := _unfit(words):
        raise SandboxError(problem, backend=BACKEND, sandbox=place.sandbox, phase="exec")
    mark = f"{MARK}={secrets.token_hex(16)}"
    variables = [*(f"{name}={value}" for name, value in env.items()), mark]

    async def begin() -> Process:
        async with place.guard("exec"):
            exec_id = await place.engine.create_exec(
                place.container, place.init.wrap(argv), user=user, env=variables, cwd=cwd, stdin=stdin
            )
            try:
                connection = await place.engine.hijack(exec_id)
            except wire.Refused as error:
                if place.gone() or not await place.engine.runs(place.container):
                    raise place.vanished("exec") from error
                return Process.failed(place, error.message)
            return Process(place, connection, exec_id=exec_id, mark=mark, user=user)

    return await finished_or_undone(begin(), Process.kill)


async def helper(place: Place, argv: Sequence[str], user: str) -> ExecResult:
    """Run a small command of our own, without the wrapping that those of users get. Raises SandboxError."""
    process = await launch(replace(place, init=Init()), argv, user=user, env={}, cwd="/", stdin=False)
    return await glance(process, HELPER_TIMEOUT)


async def find_init(place: Place) -> Init:
    """Which init program the engine mounts into containers, and where."""
    paths = ("/run/podman-init", "/dev/init") if place.engine.podman else ("/sbin/docker-init",)
    for path in paths:
        result = await helper(place, [path, "--version"], "0")
        if result.ok and result.stdout.startswith(b"tini version"):
            return Init(path, "catatonit" if b"catatonit" in result.stdout else "tini")
    return Init()


def _unfit(words: Sequence[str]) -> str:
    """Why one of the words cannot be sent to the engine, or nothing."""
    for word in words:
        if "\0" in word:
            return f"{word[:80]!r} holds a NUL"
        try:
            word.encode()
        except UnicodeEncodeError:
            return f"{word[:80]!r} is not valid text, and the engine takes no other"
    return ""
