"""Dockerfiles: from text to typed instructions.

`parse` is pure. It honours the `escape` directive, joins continued lines, drops comments, takes heredocs off, and
has every line read by `instructions`. Any text gives a `Dockerfile` or a SandboxBuildError that names the file and
the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchflow.errors import SandboxBuildError
from benchflow.sandbox.local.instructions import Arg, From, Instruction, Line, Malformed, read_instruction
from benchflow.sandbox.local.words import DEFAULT_ESCAPE, split_words

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A parsed file: ARGs for the FROM line first, if any, then FROM, then the rest."""

    where: str
    escape: str
    instructions: tuple[Instruction, ...]

    @property
    def complicated(self) -> Instruction | None:
        """The first instruction that needs a real builder."""
        return next((each for each in self.instructions if each.complication), None)

    @property
    def needs_buildkit(self) -> bool:
        """Whether Docker's older builder, the one behind its API, would refuse it."""
        return any(each.buildkit for each in self.instructions)

    def error(self, instruction: Instruction, message: str, *, hint: str | None = None) -> SandboxBuildError:
        """An error at the line of `instruction`."""
        return _error(f"{self.where}:{instruction.line}: {message}", step=instruction.text, hint=hint)


def parse(text: str, where: str = "Dockerfile") -> Dockerfile:
    """Read a Dockerfile. Raises SandboxBuildError for one that Docker would refuse to read."""
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    try:
        escape = _escape_directive(lines)
        instructions = tuple(read_instruction(line) for line in _logical_lines(lines, escape))
        return Dockerfile(where, escape, tuple(_staged(instructions)))
    except Malformed as problem:
        raise _error(f"{where}:{problem.line}: {problem}", hint=problem.hint) from None


_DIRECTIVE = re.compile(r"#\s*([a-zA-Z][a-zA-Z0-9]*)\s*=\s*(.+)")
_HEREDOC = re.compile(r"\d*<<(-?)([^<\s]+)")


def _escape_directive(lines: list[str]) -> str:
    """The escape character. Directives are the comments at the very top of the form `# name=value`."""
    for number, line in enumerate(lines, 1):
        found = _DIRECTIVE.fullmatch(line.strip())
        if not found or found[1].lower() not in {"escape", "syntax", "check"}:
            break
        if found[1].lower() == "escape":
            if found[2] not in {"\\", "`"}:
                raise Malformed(number, f"the escape character is \\ or `, not {found[2]!r}")
            return found[2]
    return DEFAULT_ESCAPE


def _logical_lines(lines: list[str], escape: str) -> Iterator[Line]:
    continued = re.compile(re.escape(escape) + r"[ \t]*$")
    remaining = enumerate(lines, 1)
    for number, first in remaining:
        line = first.strip()
        if _is_void(line):
            continue
        text = ""
        while more := continued.search(line):
            text += line[: more.start()]
            line = next((rest for _, rest in remaining if not _is_void(rest)), "")
        text = (text + line).strip()
        if not text:
            continue
        heredocs = _heredocs(text, escape)
        for terminator, strips in heredocs:
            if not any((rest.lstrip("\t") if strips else rest) == terminator for _, rest in remaining):
                raise Malformed(number, f"the heredoc is not closed by a line {terminator!r}")
        yield Line(number, text, escape, heredoc=bool(heredocs))


def _is_void(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _heredocs(text: str, escape: str) -> list[tuple[str, bool]]:
    """Terminators of the heredocs that a line opens, each with whether leading tabs are stripped from its lines."""
    if text.split(None, 1)[0].upper() not in {"RUN", "COPY", "ADD"}:
        return []
    found = (_HEREDOC.fullmatch(word) for word in split_words(text, escape))
    opened = [(match[2].strip("\"'"), match[1] == "-") for match in found if match]
    return [(name, strips) for name, strips in opened if name]


def _staged(instructions: tuple[Instruction, ...]) -> Iterator[Instruction]:
    """The instructions, each FROM after the first marked as a complication. Raises Malformed for a wrong order."""
    stages = 0
    for each in instructions:
        if isinstance(each, From):
            stages += 1
            yield replace(each, complication="it starts another build stage") if stages > 1 else each
        elif stages or isinstance(each, Arg):
            yield each
        else:
            raise Malformed(each.line, "only ARG may stand before the first FROM")
    if not stages:
        raise Malformed(1, "there is no FROM", "begin the file with FROM and the name of an image")


def _error(message: str, *, step: str = "", hint: str | None = None) -> SandboxBuildError:
    return SandboxBuildError(message, backend="local", step=step, hint=hint)
