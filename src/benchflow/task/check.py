"""`bench tasks check`: everything there is to say about a task, at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchflow.task.assemble import INSTRUCTION_FILE
from benchflow.task.lint import lint_task
from benchflow.task.load import examine, is_task

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from benchflow.task.problem import Problem


def check_task(path: Path) -> list[Problem]:
    """Every problem of the task in folder `path`: what keeps it from loading, and advice. Never raises."""
    task, problems = examine(path)
    return problems if task is None else [*problems, *lint_task(task)]


def expand(paths: Iterable[Path]) -> list[Path]:
    """Task folders, where a folder of tasks stands for every task in it, sorted by name, each once.

    A path that is neither is kept as it is, so that checking it says what is wrong. A child that looks like a task
    without its description is kept too; other children are not tasks and are left out.
    """
    found: dict[Path, None] = {}
    for path in paths:
        children = [] if is_task(path) else _children(path)
        tasks = [child for child in children if is_task(child)]
        broken = [child for child in children if child not in tasks and _looks_like_task(child)]
        found |= dict.fromkeys(sorted(tasks + broken) if tasks else [path])
    return list(found)


def _children(path: Path) -> list[Path]:
    try:
        return [child for child in path.iterdir() if child.is_dir() and not child.name.startswith(".")]
    except (OSError, ValueError):
        return []


def _looks_like_task(path: Path) -> bool:
    try:
        return (path / INSTRUCTION_FILE).is_file() or (path / "tests" / "test.sh").is_file()
    except OSError:
        return False
