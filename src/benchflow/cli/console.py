"""What every command prints with: one console per stream, one shape for errors, one for JSON.

rich is imported on first use, because it costs more to load than the rest of the command line together.
NO_COLOR is honoured by rich itself.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from rich.console import Console


@cache
def console() -> Console:
    """Standard output, for what the user asked for."""
    from rich.console import Console

    return Console(highlight=False)


@cache
def err_console() -> Console:
    """Standard error, for progress and remarks."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def print_json(document: object) -> None:
    """One JSON document on standard output, and nothing else."""
    text = json.dumps(document, indent=2, ensure_ascii=False, default=str)
    # JSON itself escapes only the controls below the space; a terminal acts on these too.
    sys.stdout.write(re.sub(r"[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def print_error(message: object) -> None:
    """On standard error, with nothing in it that a terminal would act on: it may quote what an agent wrote."""
    text = "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in str(message))
    sys.stderr.write(f"error: {text}\n")


def fail(message: object, code: int = 1) -> NoReturn:
    """Say what is wrong on standard error and end with `code`. Raises SystemExit."""
    print_error(message)
    raise SystemExit(code)
