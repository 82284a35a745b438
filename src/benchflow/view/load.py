"""Reads a rollout's folder for the viewer. Raises ConfigError when it is not one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from benchflow.errors import ConfigError
from benchflow.trajectory.reader import read_events
from benchflow.view.page import render

if TYPE_CHECKING:
    from pathlib import Path

OUTPUT_SHOWN = 256 * 1024
"""Bytes of the verifier's output that a page shows, from its end."""


def read_result(folder: Path) -> dict[str, Any]:
    """result.json of a rollout; for one that still runs or died, what config.json says."""
    for name in ("result.json", "config.json"):
        try:
            document = json.loads((folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise ConfigError(f"{folder / name} cannot be read: {error}") from None
        if isinstance(document, dict):
            return document
    raise ConfigError(
        f"{folder} is not a rollout's folder: it has no result.json",
        hint="name a folder such as jobs/<job>/<task>__<id>",
    )


def page_of(folder: Path) -> str:
    result = read_result(folder)
    events = list(read_events(folder / "trajectory" / "acp_trajectory.jsonl"))
    output = folder / "verifier" / "test-stdout.txt"
    tail = output.read_bytes()[-OUTPUT_SHOWN:].decode("utf-8", "replace") if output.is_file() else ""
    return render(result, events, tail)
