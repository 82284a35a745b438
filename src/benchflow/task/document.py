"""The two documents that describe a task, read into the same raw data.

`task.toml` holds the configuration, beside `instruction.md`. `task.md` holds both: YAML front matter between two
`---` lines, then the prompt. One blank line after the front matter belongs to neither. `task.toml` wins where both
are present, since that is what every other reader of such a folder does.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchflow.task.files import Unreadable, fault, read_text
from benchflow.task.legacy import TABLE_ALIASES
from benchflow.task.model import DEPTH_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchflow.task.problem import KeyPath
    from benchflow.task.task import Form

CONFIG_LIMIT = 1024 * 1024
"""Bytes of a configuration."""

INSTRUCTION_LIMIT = 1024 * 1024
"""Bytes of an instruction. A longer one is a problem, and is never read."""

FILES: dict[Form, str] = {"toml": "task.toml", "md": "task.md"}

_FENCE = re.compile(r"---[ \t]*\r?(?:\n|\Z)")
_CLOSING = re.compile(r"^---[ \t]*\r?(?:\n|\Z)", re.MULTILINE)
_BLANK = re.compile(r"\r?\n")
_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)$")


@dataclass(frozen=True, slots=True)
class Document:
    """A description of a task as it was written. `lines` finds the line of each key, on demand."""

    file: Path
    root: Path
    """The task's folder, resolved."""
    form: Form
    raw: dict[str, object]
    lines: Callable[[], dict[KeyPath, int]]
    body: str | None = None
    """The prompt of `task.md`, exactly; None for `task.toml`."""
    ignored: Path | None = None
    """A second description that is not read."""


def find_document(folder: Path) -> Path | None:
    """The file that makes a folder a task, or None."""
    return next((folder / name for name in FILES.values() if (folder / name).exists()), None)


def read_document(file: Path, root: Path) -> Document:
    """Read one description. Raises Unreadable with the one reason why it cannot be."""
    if file.name == FILES["md"]:
        return _read_md(file, root, read_text(file, root, CONFIG_LIMIT + INSTRUCTION_LIMIT))
    text = read_text(file, root, CONFIG_LIMIT)
    other = file.with_name(FILES["md"])
    ignored = other if other.is_file() else None
    return Document(file, root, "toml", parse_toml(file, text), lambda: _toml_lines(text), ignored=ignored)


def parse_toml(file: Path, text: str) -> dict[str, object]:
    """The data of a TOML text. Raises Unreadable, nothing else."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        match = _AT_LINE.search(said)
        line = int(match[1]) if match else text.count("\n") + 1
        reason = said[: match.start()] if match else said
        problem = fault(file, "bad-toml", f"not valid TOML: {reason}", "TOML", "correct the syntax", line=line)
    except ValueError as error:  # an integer of thousands of digits, a date that does not exist
        problem = fault(file, "bad-toml", f"not valid TOML: {error}", "TOML", "correct the value")
    except RecursionError:
        what = f"nested more than {DEPTH_LIMIT} levels deep"
        problem = fault(file, "bad-toml", what, "fewer levels", "flatten it")
    raise Unreadable(problem)


def _toml_lines(text: str) -> dict[KeyPath, int]:
    from benchflow.task.toml_lines import key_lines

    return _with_aliases(key_lines(text))


def _with_aliases(lines: dict[KeyPath, int]) -> dict[KeyPath, int]:
    """Problems name a table by its own name, also where the document uses the other one."""
    for path, line in list(lines.items()):
        if path and path[0] in TABLE_ALIASES:
            lines.setdefault((TABLE_ALIASES[path[0]], *path[1:]), line)
    return lines


def split_front_matter(file: Path, text: str) -> tuple[str, str]:
    """The YAML and the prompt of a `task.md`. Raises Unreadable when it has no front matter."""
    opening = _FENCE.match(text)
    expected = "front matter between two lines of '---', then the prompt"
    if opening is None:
        fix = "begin the file with '---' on a line of its own"
        raise Unreadable(fault(file, "no-front-matter", "does not begin with '---'", expected, fix, line=1))
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        fix = "end the front matter with '---' on a line of its own"
        raise Unreadable(fault(file, "no-front-matter", "the front matter does not end", expected, fix, line=1))
    body = text[closing.end() :]
    blank = _BLANK.match(body)
    return text[opening.end() : closing.start()], body[blank.end() :] if blank else body


def _read_md(file: Path, root: Path, text: str) -> Document:
    from benchflow.task.yaml_text import YamlFault, read_yaml

    front, body = split_front_matter(file, text)
    if len(front) > CONFIG_LIMIT or len(body) > INSTRUCTION_LIMIT:
        what = f"the front matter is {len(front):,} and the prompt {len(body):,} characters long"
        expected = f"at most {CONFIG_LIMIT:,} and {INSTRUCTION_LIMIT:,}"
        raise Unreadable(fault(file, "too-large", what, expected, "shorten it"))
    try:
        raw, lines = read_yaml(front)
    except YamlFault as error:
        raise Unreadable(fault(file, "bad-yaml", error.what, error.expected, error.fix, line=error.line + 1)) from error
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        what, fix = "the front matter is not a mapping", "write 'key: value'"
        raise Unreadable(fault(file, "bad-yaml", what, "keys and values", fix, line=2))
    shifted = {path: line + 1 for path, line in lines.items()}
    return Document(file, root, "md", raw, lambda: _with_aliases(shifted), body)
