"""Reads the folder of a rollout, with its branches, or of a job, for whoever shows it.

Bounded: of long outputs only the end is read, and only so many branches are read whole. Raises ConfigError when a
folder is neither.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchflow.errors import ConfigError
from benchflow.trajectory.reader import read_events

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchflow.trajectory.events import Event

OUTPUT_SHOWN = 256 * 1024
"""Bytes of a verifier's output that are shown, from its end."""

LOG_SHOWN = 16 * 1024
"""Bytes of an agent's log that are shown beside an error, from its end."""

BRANCHES_SHOWN = 50
"""Branches of a rollout that are shown whole; every one is listed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is in a rollout's folder. `outputs` and `logs` are pairs of a name and the end of the text."""

    folder: Path
    result: dict[str, Any]
    events: Sequence[Event] = ()
    prompts: Sequence[object] = ()
    findings: Sequence[dict[str, Any]] = ()
    outputs: Sequence[tuple[str, str]] = ()
    round_outputs: Sequence[str] = ()
    logs: Sequence[tuple[str, str]] = ()
    branches: dict[str, Seen] = field(default_factory=dict)


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
        hint="name a folder such as jobs/<job>/<task>__<id>, or a job's",
    )


def read_rollout(folder: Path, result: dict[str, Any] | None = None, *, branches: bool = True) -> Seen:
    """Everything that is shown of a rollout; `branches` says whether theirs is read as well."""
    from benchflow.view.facts import branches as listed

    result = read_result(folder) if result is None else result
    regraded = result.get("regraded")
    scored = folder / str(regraded["folder"]) if isinstance(regraded, dict) and regraded.get("folder") else folder
    seen: dict[str, Seen] = {}
    for branch in listed(result)[: BRANCHES_SHOWN if branches else 0]:
        place = folder / branch.folder
        # It may not have been reached yet, or have been removed.
        if (place / "config.json").is_file() or (place / "result.json").is_file():
            seen[branch.anchor] = read_rollout(place, branches=False)
    return Seen(
        folder=folder,
        result=result,
        events=list(read_events(folder / "trajectory" / "acp_trajectory.jsonl")),
        prompts=_listed(folder / "prompts.json"),
        findings=list(_findings(scored)),
        outputs=list(_outputs(scored)),
        round_outputs=_round_outputs(folder),
        logs=list(_logs(folder)) if result.get("error") else (),
        branches=seen,
    )


def _findings(scored: Path) -> Iterator[dict[str, Any]]:
    # Not anywhere below: what an agent left may have been copied there too.
    for path in (scored / "tampering.json", *sorted(scored.glob("steps/*/tampering.json"))):
        document = _document(path)
        findings = document.get("findings") if isinstance(document, dict) else None
        yield from (one for one in findings or () if isinstance(one, dict))


def _outputs(scored: Path) -> Iterator[tuple[str, str]]:
    for place in (scored, *sorted(scored.glob("steps/*"))):
        if text := tail(place / "verifier" / "test-stdout.txt", OUTPUT_SHOWN):
            yield (place.name if place != scored else ""), text


def _round_outputs(folder: Path) -> list[str]:
    """What the verifier said after each round, in their order."""
    found = [place for place in (folder / "rounds").glob("*") if place.name.isdecimal()]
    ordered = sorted(found, key=lambda place: int(place.name))
    return [tail(place / "verifier" / "test-stdout.txt", OUTPUT_SHOWN) for place in ordered]


def _logs(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted((folder / "agent").glob("*.txt")):
        if text := tail(path, LOG_SHOWN):
            yield f"agent/{path.name}", text


def tail(path: Path, limit: int) -> str:
    """The end of a text file; nothing when there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - limit))
            text = file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""
    return text if size <= limit else f"… {size - limit:,} bytes before this are in {path.name}\n{text}"


def _listed(path: Path) -> list[object]:
    found = _document(path)
    return found if isinstance(found, list) else []


def _document(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
