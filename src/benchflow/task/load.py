"""Loading a task: from a folder to a `Task`, or to every reason why not.

`read_task` is total: whatever lies at the path, the answer is a task or a diagnosis, never an exception. Loading
reads the description and the instructions and lists the uploaded trees; it never reads the content of tests.
"""

from __future__ import annotations

from pathlib import Path

from benchflow.task.assemble import Assembly, strip_canary
from benchflow.task.document import FILES, Document, find_document, read_document
from benchflow.task.files import Unreadable, fault, unreadable
from benchflow.task.model import parse_config, salvage
from benchflow.task.problem import InvalidTask, Problem, has_errors, place
from benchflow.task.task import Step, Task

__all__ = ["Step", "Task", "examine", "is_task", "load_task", "read_task", "strip_canary"]


def load_task(path: Path | str) -> Task:
    """The task in folder `path`. Raises InvalidTask (a TaskError) whose message holds every problem."""
    task, problems = read_task(path)
    if task is None:
        raise InvalidTask(Path(path), problems)
    return task


def read_task(path: Path | str) -> tuple[Task | None, list[Problem]]:
    """The task and its warnings, or None and everything that is wrong. Never raises."""
    task, problems = examine(path)
    return (None if has_errors(problems) else task), problems


def examine(path: Path | str) -> tuple[Task | None, list[Problem]]:
    """Like `read_task`, but with what could be made out of a task that has errors. For diagnosis only."""
    folder = Path(path)
    try:
        document = _open(folder)
        config, issues = parse_config(document.raw)
        problems = place(issues, document.file, document.lines()) if issues else []
        readable = config or salvage(document.raw, issues)
        task = Assembly(folder, document, readable, problems).task() if readable else None
    except Unreadable as error:
        return None, [error.problem]
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in the path, a loop of links, no permission
        return None, [unreadable(folder, error)]
    return task, problems


def is_task(path: Path) -> bool:
    """Whether a folder says that it is a task, however broken it may be."""
    try:
        return find_document(path) is not None
    except (OSError, ValueError):
        return False


def _open(folder: Path) -> Document:
    if not folder.is_dir():
        raise Unreadable(_no_folder(folder))
    file = find_document(folder)
    if file is None:
        empty = not any(folder.iterdir())
        what = "the folder is empty" if empty else f"the folder has neither {FILES['toml']} nor {FILES['md']}"
        fix = "make a task with 'bench tasks init NAME'" if empty else f"add {FILES['toml']}; it may be empty"
        raise Unreadable(fault(folder, "no-task", what, "a task", fix))
    return read_document(file, folder.resolve())


def _no_folder(path: Path) -> Problem:
    if not path.exists():
        return fault(path, "no-task", "does not exist", "the folder of a task", "check the path")
    inside = path.name in FILES.values()
    fix = f"name its folder instead: {path.parent}" if inside else "name the folder of a task"
    return fault(path, "no-task", "is a file", "the folder of a task", fix)
