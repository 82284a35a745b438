"""What is wrong with a task, said so that it can be fixed.

An `Issue` knows a key inside a configuration; a `Problem` knows a file and a line. Parsing yields issues, and the
loader, which knows the file, turns them into problems. Every problem says three things: what is wrong, what was
expected, and how to fix it. A warning never keeps a task from running; an error always does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchflow.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

Severity = Literal["error", "warning"]
type KeyPath = tuple[str | int, ...]

_WORDS = {True: "true", False: "false"}

SHOWN_LIMIT = 60
"""Characters of a wrong value that a message repeats."""


@dataclass(frozen=True, slots=True)
class Issue:
    """Something wrong at one key of a configuration; the empty path is the whole document."""

    path: KeyPath
    what: str
    expected: str = ""
    fix: str = ""
    code: str = "invalid-value"
    severity: Severity = "error"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong at one place of a task. Prints as `file:line: what is wrong; expected ...; fix: ...`."""

    file: Path
    line: int | None
    severity: Severity
    message: str
    expected: str = ""
    fix: str = ""
    code: str = "invalid-value"

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line is not None else str(self.file)
        parts = [self.message]
        if self.expected:
            parts.append(f"expected {self.expected}")
        if self.fix:
            parts.append(f"fix: {self.fix}")
        mark = "warning: " if self.severity == "warning" else ""
        return printable(f"{where}: {mark}{'; '.join(parts)}")

    def as_json(self) -> dict[str, str | int | None]:
        """The same as plain JSON values; text that UTF-8 cannot say is escaped."""
        return {
            "file": printable(str(self.file)),
            "line": self.line,
            "severity": self.severity,
            "code": self.code,
            "message": printable(self.message),
            "expected": printable(self.expected),
            "fix": printable(self.fix),
        }


class InvalidTask(TaskError):
    """A task that cannot be loaded. The message holds every problem; `problems` holds them as data."""

    def __init__(self, path: Path, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = sum(problem.severity == "error" for problem in problems)
        head = printable(f"{path}: not a loadable task ({count} {'problem' if count == 1 else 'problems'})")
        super().__init__("\n".join([head, *(f"  {problem}" for problem in problems)]))


def has_errors(problems: Iterable[Problem | Issue]) -> bool:
    return any(problem.severity == "error" for problem in problems)


def place(issues: Iterable[Issue], file: Path, lines: Mapping[KeyPath, int]) -> list[Problem]:
    """Issues as problems of `file`, by line. A key without a line of its own gets that of its nearest parent."""
    problems = [
        Problem(
            file=file,
            line=nearest_line(issue.path, lines),
            severity=issue.severity,
            message=f"{dotted(issue.path)}: {issue.what}" if issue.path else issue.what,
            expected=issue.expected,
            fix=issue.fix,
            code=issue.code,
        )
        for issue in issues
    ]
    return sorted(problems, key=lambda problem: problem.line or 0)


def nearest_line(path: KeyPath, lines: Mapping[KeyPath, int]) -> int | None:
    for length in range(len(path), -1, -1):
        if (line := lines.get(path[:length])) is not None:
            return line
    return None


def dotted(path: KeyPath) -> str:
    """`("steps", 0, "name")` as `steps[0].name`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{part}"
    return printable(text)


def show(value: object) -> str:
    """A value as a message repeats it: bounded, on one line, whatever it is."""
    try:
        text = (
            _WORDS.get(value, "")
            if isinstance(value, bool)
            else str(value)
            if hasattr(value, "isoformat")
            else repr(value)
        )
    except (ValueError, RecursionError):  # an integer of thousands of digits, a very deep list
        return f"a very large {type(value).__name__}"
    return printable(text if len(text) <= SHOWN_LIMIT else f"{text[:SHOWN_LIMIT]}...")


def printable(text: str) -> str:
    """Text that any UTF-8 output takes and that stays on its line: control characters and lone surrogates escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
