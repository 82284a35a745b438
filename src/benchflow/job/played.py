"""Which performance a rollout is: its measurement without the verifier.

Two measurements of the same performance differ in how the work is scored and in nothing that an agent could notice. The
work of the one can then be scored by the verifier of the other, without running an agent again.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from benchflow.errors import TaskError
from benchflow.task.digest import digest_of
from benchflow.task.document import FILES, find_document, read_document
from benchflow.task.files import Unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

UNSEEN_FILES = ("README.md", "trajectory.json")
UNSEEN_FOLDERS = ("tests", "verifier")
SOLUTION_FOLDERS = ("solution", "oracle")
UNSEEN_TABLES = ("verifier", "metadata", "multi_step_reward_strategy", "artifacts")
"""Parts of a description that say how a task is scored or what it is about, not what an agent meets."""


def played_digest(folder: Path, files: Mapping[str, str], *, solved: bool) -> str:
    """A digest of what an agent meets of the task in `folder`, whose `files` are as `file_digests` gives them.

    The solution counts only when it is what is played (`solved`). Raises TaskError when the task cannot be read.
    """
    unseen = UNSEEN_FOLDERS if solved else UNSEEN_FOLDERS + SOLUTION_FOLDERS
    seen = {name: content for name, content in files.items() if not _is_unseen(name.split("/"), unseen)}
    file = find_document(folder)
    if file is None:
        raise TaskError(f"{folder}: not a task: it has neither {' nor '.join(FILES.values())}")
    try:
        document = read_document(file, folder.resolve())
    except Unreadable as error:
        raise TaskError(str(error.problem)) from None
    description = json.dumps([_seen(document.raw), document.body], sort_keys=True, default=str)
    return digest_of({**seen, file.name: hashlib.sha256(description.encode()).hexdigest()})


def _is_unseen(parts: list[str], unseen: tuple[str, ...]) -> bool:
    if len(parts) == 1:
        return parts[0] in UNSEEN_FILES
    return parts[0] in unseen or (parts[0] == "steps" and len(parts) > 2 and parts[2] in unseen)


def _seen(table: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in table.items() if key not in UNSEEN_TABLES}
    if isinstance(steps := kept.get("steps"), list):
        kept["steps"] = [_seen_step(step) if isinstance(step, dict) else step for step in steps]
    return kept


def _seen_step(step: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in step.items() if key not in (*UNSEEN_TABLES, "min_reward")}
