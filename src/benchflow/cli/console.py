"""What every command prints with: one console per stream, one shape for errors, one for JSON.

rich is imported on first use, because it costs more to load than the rest of the command line together.
NO_COLOR is honoured by rich itself.
"""

from __future__ import annotations

import json
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
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n")


def print_error(message: object) -> None:
    sys.stderr.write(f"error: {message}\n")


def fail(message: object, code: int = 1) -> NoReturn:
    """Say what is wrong on standard error and end with `code`. Raises SystemExit."""
    print_error(message)
    raise SystemExit(code)
