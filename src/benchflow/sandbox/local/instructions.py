"""The instructions of a Dockerfile as types, and how each is read from its line.

Variables are left as written: their values are known only when the lines before have been executed. An
instruction that only a real builder can execute says why in `complication`; it is empty for the simple ones.
"""

from __future__ import annotations

import difflib
import json
import platform
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from benchflow.sandbox.local.words import split_words

if TYPE_CHECKING:
    from collections.abc import Callable

type Command = str | tuple[str, ...]
"""A line for the shell, or the arguments of a program."""

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}.get(platform.machine(), platform.machine())
"""This machine's architecture as Docker spells it."""

BLANKS = re.compile(r"[\t\v\f\r ]+")


class Malformed(Exception):
    """A line that cannot be read; `parse` turns it into the error the user sees."""

    def __init__(self, line: int, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction: the line it begins on, its text with continued lines joined, and why it is not simple, if so.

    `buildkit` says that of Docker's two builders only the newer one knows it.
    """

    line: int
    text: str
    complication: str = ""
    buildkit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class From(Instruction):
    image: str
    alias: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arg(Instruction):
    pairs: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Env(Instruction):
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workdir(Instruction):
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class User(Instruction):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell(Instruction):
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Instruction):
    command: Command


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy(Instruction):
    """COPY, and ADD where it does the same (`unpacks`: a tar archive among the sources is not simple)."""

    sources: tuple[str, ...]
    target: str
    chown: str = ""
    chmod: str = ""
    unpacks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(Instruction):
    """An instruction that changes nothing of what a sandbox is made of: CMD, LABEL, EXPOSE and their like."""

    keyword: str


class Line(NamedTuple):
    """A logical line as `read_instruction` takes it: continued lines joined, heredocs taken off."""

    number: int
    text: str
    escape: str
    heredoc: bool = False


class _Parts(NamedTuple):
    """A line taken apart, as the reader of one keyword gets it."""

    line: Line
    keyword: str
    rest: str
    flags: dict[str, str]

    def bad(self, message: str) -> Malformed:
        return Malformed(self.line.number, f"{self.keyword}: {message}")


_FLAG = re.compile(r"--([a-z][a-z-]*)(?:=((?:[^\s\"']|\"[^\"]*\"|'[^']*')*))?(?:\s+|$)")


def read_instruction(line: Line) -> Instruction:
    """The instruction on a logical line. Raises Malformed."""
    keyword, _, rest = BLANKS.sub(" ", line.text, count=1).partition(" ")
    keyword = keyword.upper()
    reader = _READERS.get(keyword)
    if reader is None:
        near = difflib.get_close_matches(keyword, _READERS, 1)
        hint = f"did you mean {near[0]}?" if near else None
        raise Malformed(line.number, f"unknown instruction {keyword[:40]!r}", hint)
    flags: dict[str, str] = {}
    if keyword in _FLAGGED:
        while flag := _FLAG.match(rest):
            flags[flag[1]] = flag[2] or ""
            rest = rest[flag.end() :]
    parts = _Parts(line, keyword, rest, flags)
    if not rest:
        raise parts.bad("needs an argument")
    return reader(parts)


def _from(parts: _Parts) -> From:
    words = parts.rest.split()
    named = len(words) == 3 and words[1].upper() == "AS"
    if len(words) != 1 and not named:
        raise parts.bad("is written FROM image or FROM image AS name")
    flags = dict(parts.flags)
    wanted = flags.pop("platform", "linux")
    here = wanted in {"linux", f"linux/{ARCHITECTURE}"} or wanted.strip("${}") in {"BUILDPLATFORM", "TARGETPLATFORM"}
    return From(
        line=parts.line.number,
        text=parts.line.text,
        image=words[0],
        alias=words[2].lower() if named else "",
        complication=_flag_complication(flags) if here else f"it is for another platform, {wanted}",
    )


def _arg(parts: _Parts) -> Arg:
    pairs = [word.partition("=") for word in split_words(parts.rest, parts.line.escape)]
    if not pairs or not all(name for name, _, _ in pairs):
        raise parts.bad("a name is missing")
    return Arg(
        line=parts.line.number,
        text=parts.line.text,
        pairs=tuple((name, value if equals else None) for name, equals, value in pairs),
    )


def _pairs(parts: _Parts) -> tuple[tuple[str, str], ...]:
    """`NAME=value ...`, or the old form `NAME value with blanks`."""
    words = split_words(parts.rest, parts.line.escape)
    if words and "=" not in words[0]:
        name, *value = BLANKS.split(parts.rest, maxsplit=1)
        if not value:
            raise parts.bad("needs a name and a value")
        return ((name, value[0]),)
    pairs = [word.partition("=") for word in words]
    if not pairs or not all(name and equals for name, equals, _ in pairs):
        raise parts.bad("is written NAME=value, with quotes around values that have blanks")
    return tuple((name, value) for name, _, value in pairs)


def _env(parts: _Parts) -> Env:
    return Env(line=parts.line.number, text=parts.line.text, pairs=_pairs(parts))


def _workdir(parts: _Parts) -> Workdir:
    return Workdir(line=parts.line.number, text=parts.line.text, path=parts.rest)


def _user(parts: _Parts) -> User:
    return User(line=parts.line.number, text=parts.line.text, name=parts.rest)


def _shell(parts: _Parts) -> Shell:
    command = _command(parts)
    if isinstance(command, str):
        raise parts.bad('is written as a list: SHELL ["/bin/bash", "-c"]')
    return Shell(line=parts.line.number, text=parts.line.text, argv=command)


def _run(parts: _Parts) -> Run:
    why = "it has a heredoc" if parts.line.heredoc else _flag_complication(parts.flags)
    return Run(
        line=parts.line.number, text=parts.line.text, command=_command(parts), complication=why, buildkit=bool(why)
    )


def _copy(parts: _Parts) -> Copy:
    command = _command(parts)
    *sources, target = parts.rest.split() if isinstance(command, str) else command
    if not sources:
        raise parts.bad("needs at least one source and a destination")
    adds = parts.keyword == "ADD"
    flags = dict(parts.flags)
    chown, chmod = flags.pop("chown", ""), flags.pop("chmod", "")
    flags.pop("link", None)
    why = "it has a heredoc" if parts.line.heredoc else _flag_complication(flags)
    if adds and (url := next((s for s in sources if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://|git@", s)), None)):
        why = f"it downloads {url}"
    return Copy(
        line=parts.line.number,
        text=parts.line.text,
        sources=tuple(sources),
        target=target,
        chown=chown,
        chmod=chmod,
        unpacks=adds,
        complication=why,
        buildkit=parts.line.heredoc or bool(flags.keys() - {"from"}),
    )


def _note(parts: _Parts) -> Note:
    if parts.keyword == "LABEL":
        _pairs(parts)
    why = "it is a trigger for later builds" if parts.keyword == "ONBUILD" else ""
    return Note(line=parts.line.number, text=parts.line.text, keyword=parts.keyword, complication=why)


def _command(parts: _Parts) -> Command:
    """The exec form where the rest is a list of strings in JSON; the text itself otherwise."""
    if not parts.rest.startswith("["):
        return parts.rest
    try:
        value = json.loads(parts.rest)
    except (ValueError, RecursionError):
        return parts.rest
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise parts.bad("a list in brackets holds strings, and at least one")
    return tuple(value)


def _flag_complication(flags: dict[str, str]) -> str:
    return f"it has --{next(iter(flags))}" if flags else ""


_FLAGGED = {"FROM", "RUN", "COPY", "ADD", "HEALTHCHECK"}

_READERS: dict[str, Callable[[_Parts], Instruction]] = {
    "FROM": _from,
    "ARG": _arg,
    "ENV": _env,
    "WORKDIR": _workdir,
    "USER": _user,
    "SHELL": _shell,
    "RUN": _run,
    "COPY": _copy,
    "ADD": _copy,
    "CMD": _note,
    "ENTRYPOINT": _note,
    "LABEL": _note,
    "EXPOSE": _note,
    "STOPSIGNAL": _note,
    "HEALTHCHECK": _note,
    "VOLUME": _note,
    "MAINTAINER": _note,
    "ONBUILD": _note,
}
