"""From a Dockerfile to the steps that make layers: everything that can be decided before anything runs.

`plan` walks the instructions with the state they act on (environment, arguments, folder, user, shell) and gives the
few that change files as steps, each complete in itself. A missing source, an unset variable or a malformed mode is
found here, before the first command runs.
"""

from __future__ import annotations

import posixpath
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from benchflow.sandbox.base import DEFAULT_PATH
from benchflow.sandbox.dockerignore import files_digest
from benchflow.sandbox.local.copying import Source, find_sources, is_archive
from benchflow.sandbox.local.instructions import (
    ARCHITECTURE,
    Arg,
    Copy,
    Env,
    From,
    Instruction,
    Run,
    Shell,
    User,
    Workdir,
)
from benchflow.sandbox.local.words import expand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchflow.sandbox.dockerignore import ContextFile
    from benchflow.sandbox.local.dockerfile import Dockerfile


DEFAULT_SHELL = ("/bin/sh", "-c")

PLATFORM_ARGS = {
    f"{side}{name}": value
    for side in ("BUILD", "TARGET")
    for name, value in (("OS", "linux"), ("ARCH", ARCHITECTURE), ("PLATFORM", f"linux/{ARCHITECTURE}"), ("VARIANT", ""))
}
"""Arguments that have a value without being given one, once they are declared."""


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What an image says about processes started in it."""

    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = ""
    shell: tuple[str, ...] = DEFAULT_SHELL
    triggers: tuple[str, ...] = ()
    """ONBUILD instructions, which act on the builds that start from the image."""


@dataclass(frozen=True, slots=True)
class RunStep:
    instruction: Run
    argv: tuple[str, ...]
    env: Mapping[str, str]
    workdir: str
    user: str

    def identity(self) -> tuple[object, ...]:
        return "run", self.argv, sorted(self.env.items()), self.workdir, self.user


@dataclass(frozen=True, slots=True)
class WorkdirStep:
    instruction: Workdir
    path: str
    user: str

    def identity(self) -> tuple[object, ...]:
        return "workdir", self.path, self.user


@dataclass(frozen=True, slots=True)
class CopyStep:
    """`target` is absolute; it ends in a slash where it is said to be a folder."""

    instruction: Copy
    sources: tuple[Source, ...]
    target: str
    chown: str
    mode: int | None

    def identity(self) -> tuple[object, ...]:
        content = [(source.name, source.folder, files_digest(source.files)) for source in self.sources]
        return "copy", content, self.target, self.chown, self.mode


type Step = RunStep | WorkdirStep | CopyStep


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Step, ...]
    config: ImageConfig


def base_name(dockerfile: Dockerfile) -> str:
    """The image that the first FROM names. Raises SandboxBuildError when its variables do not give a name."""
    declared = _global_args(dockerfile)
    origin = next(each for each in dockerfile.instructions if isinstance(each, From))
    name = _expander(dockerfile, origin, declared)(origin.image)
    if not name:
        raise dockerfile.error(origin, f"{origin.image!r} is empty after its variables are replaced")
    return name


def needs_builder(dockerfile: Dockerfile, context: Sequence[ContextFile]) -> tuple[Instruction, str] | None:
    """The first instruction that only a real builder can execute, and why. None when all are simple."""
    if found := dockerfile.complicated:
        return found, found.complication
    by_name = {file.name: file for file in context}
    for each in dockerfile.instructions:
        for pattern in each.sources if isinstance(each, Copy) and each.unpacks else ():
            with suppress(ValueError):
                if _has_archive(find_sources(by_name, pattern)):
                    return each, "it unpacks an archive"
    return None


def plan(dockerfile: Dockerfile, base: ImageConfig, context: Sequence[ContextFile]) -> Plan:
    """The steps of a Dockerfile without complications on top of `base`, and the configuration they end in.

    Raises SandboxBuildError, naming the line, for a variable or a source that is not there.
    """
    walk = _Walk(dockerfile, base, context)
    begun = False
    for instruction in dockerfile.instructions:
        if begun:
            walk.take(instruction)
        begun = begun or isinstance(instruction, From)
    return Plan(tuple(walk.steps), walk.config)


class _Walk:
    """The state that instructions act on, and the steps they gave so far."""

    def __init__(self, dockerfile: Dockerfile, base: ImageConfig, context: Sequence[ContextFile]) -> None:
        self.steps: list[Step] = []
        self.config = replace(base, env={"PATH": DEFAULT_PATH, **base.env}, triggers=())
        self._dockerfile = dockerfile
        self._context = {file.name: file for file in context}
        self._offered = PLATFORM_ARGS | _global_args(dockerfile)
        self._args: dict[str, str] = {}

    def take(self, instruction: Instruction) -> None:
        words = _expander(self._dockerfile, instruction, self._args | dict(self.config.env))
        match instruction:
            case Arg():
                for name, value in instruction.pairs:
                    self._declare(words(name), None if value is None else words(value))
            case Env():
                added = {words(name): words(value) for name, value in instruction.pairs}
                self.config = replace(self.config, env={**self.config.env, **added})
            case User():
                self.config = replace(self.config, user=words(instruction.name))
            case Shell():
                self.config = replace(self.config, shell=instruction.argv)
            case Workdir():
                path = posixpath.normpath(posixpath.join(self.config.workdir, words(instruction.path)))
                self.config = replace(self.config, workdir=path)
                if path != "/":
                    self.steps.append(WorkdirStep(instruction, path, self.config.user))
            case Run():
                self.steps.append(self._run(instruction))
            case Copy():
                self.steps.append(self._copy(instruction, words))
            case _:
                pass

    def _declare(self, name: str, value: str | None) -> None:
        """An argument without a default takes the value it has before FROM, if it has one there."""
        offered = self._offered.get(name) if value is None else value
        if offered is not None:
            self._args[name] = offered

    def _run(self, instruction: Run) -> RunStep:
        command = instruction.command
        argv = (*self.config.shell, command) if isinstance(command, str) else command
        env = {**self._args, **self.config.env}
        return RunStep(instruction, argv, env, self.config.workdir, self.config.user)

    def _copy(self, instruction: Copy, words: Callable[[str], str]) -> CopyStep:
        error = self._dockerfile.error
        try:
            sources = [found for each in instruction.sources for found in find_sources(self._context, words(each))]
        except ValueError as problem:
            raise error(instruction, str(problem)) from None
        if instruction.unpacks and _has_archive(sources):
            raise error(instruction, "ADD unpacks an archive here", hint="name the archive without variables")
        written = words(instruction.target)
        target = posixpath.join(self.config.workdir, written)
        as_folder = target.endswith(("/", "/.")) or written in {".", ".."}
        target = posixpath.normpath(target)
        target = target.rstrip("/") + "/" if as_folder else target
        if len(sources) > 1 and not as_folder:
            raise error(instruction, "with several sources the destination must be a folder", hint="end it with '/'")
        mode = words(instruction.chmod)
        if mode and not re.fullmatch(r"0?[0-7]{1,4}", mode):
            raise error(instruction, f"--chmod={mode} is not an octal mode", hint="write it as 0755 or 644")
        return CopyStep(instruction, tuple(sources), target, words(instruction.chown), int(mode, 8) if mode else None)


def _has_archive(sources: Sequence[Source]) -> bool:
    return any(not source.folder and source.files and is_archive(source.files[0].path) for source in sources)


def _global_args(dockerfile: Dockerfile) -> dict[str, str]:
    """The arguments declared before FROM, which alone that line sees."""
    values: dict[str, str] = {}
    for each in dockerfile.instructions:
        if not isinstance(each, Arg):
            break
        words = _expander(dockerfile, each, PLATFORM_ARGS | values)
        values |= {words(name): words(value) for name, value in each.pairs if value is not None}
    return values


def _expander(dockerfile: Dockerfile, instruction: Instruction, variables: Mapping[str, str]) -> Callable[[str], str]:
    def words(text: str) -> str:
        try:
            return expand(text, variables, dockerfile.escape)
        except ValueError as problem:
            raise dockerfile.error(instruction, str(problem)) from None

    return words
