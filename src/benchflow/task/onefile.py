"""Conversion between the two forms of a task, without loss.

`migrate` turns `task.toml` + `instruction.md` into one `task.md`; `export` goes the other way. What was written is
carried over as data, unknown keys and old spellings included, and every other file is copied. Comments and layout of
the description do not survive. `[environment]` is called `sandbox` in `task.md`; `tests/` and `solution/` are called
`verifier/` and `oracle/`, while the folders of steps keep their names.

The result is loaded and compared with the source before it appears under its name: a conversion that would change
anything (a time of day, which YAML does not have; a link through a renamed folder) is refused, and leaves nothing.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

from benchflow.errors import TaskError
from benchflow.task.assemble import INSTRUCTION_FILE
from benchflow.task.document import FILES, INSTRUCTION_LIMIT, find_document, read_document
from benchflow.task.files import Unreadable, read_text
from benchflow.task.load import load_task, read_task
from benchflow.task.problem import InvalidTask, dotted

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchflow.task.document import Document
    from benchflow.task.problem import KeyPath
    from benchflow.task.task import Form, Task

NATIVE_FOLDERS = {"tests": "verifier", "solution": "oracle"}
"""Folder of a `task.toml` task -> the same in a `task.md` task."""

NATIVE_TABLES = {"environment": "sandbox"}
"""The same for tables."""


def migrate(source: Path, target: Path) -> Path:
    """Write the `task.toml` task in `source` as a `task.md` task into `target`, a folder that is new or empty.

    Returns `target`. Raises TaskError when the source is not a loadable `task.toml` task, when the target is in the
    way, or when something would be lost. The source is never changed.
    """
    return _convert(source, target, "toml", _write_md)


def export(source: Path, target: Path) -> Path:
    """Write the `task.md` task in `source` as a `task.toml` task into `target`. Otherwise like `migrate`."""
    return _convert(source, target, "md", _write_toml)


def _write_md(document: Document, folder: Path) -> None:
    instruction = folder / INSTRUCTION_FILE
    body = read_text(instruction, folder.resolve(), INSTRUCTION_LIMIT) if instruction.exists() else ""
    front = _yaml(_renamed(document.raw, NATIVE_TABLES))
    (folder / FILES["md"]).write_bytes(f"---\n{front}---\n\n{body}".encode())
    instruction.unlink(missing_ok=True)
    _rename_folders(folder, NATIVE_FOLDERS)


def _write_toml(document: Document, folder: Path) -> None:
    import tomlkit

    raw = _renamed(document.raw, {native: name for name, native in NATIVE_TABLES.items()})
    (folder / FILES["toml"]).write_bytes(tomlkit.dumps(raw).encode())
    if (folder / INSTRUCTION_FILE).exists():
        raise TaskError(f"{INSTRUCTION_FILE} is in the way", hint="remove it: a task.md task does not use it")
    if document.body:
        (folder / INSTRUCTION_FILE).write_bytes(document.body.encode())
    for base in (folder, *sorted((folder / "steps").glob("*/"))):
        _rename_folders(base, {native: name for name, native in NATIVE_FOLDERS.items()})


def _convert(source: Path, target: Path, form: Form, write: Callable[[Document, Path], None]) -> Path:
    before = load_task(source)
    if before.form != form:
        raise TaskError(f"{source}: has no {FILES[form]}", hint="it is in the other form already")
    try:
        _check_target(source, target)
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name[:40]}.", dir=target.parent))
        try:
            work = staging / "task"
            _write_copy(before, work, write)
            if target.exists():
                target.rmdir()
            work.rename(target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except Unreadable as error:
        raise InvalidTask(source, [error.problem]) from error
    except (OSError, ValueError) as error:
        raise TaskError(f"{source}: cannot be converted into {target}: {error}") from error
    return target


def _write_copy(before: Task, work: Path, write: Callable[[Document, Path], None]) -> None:
    file = cast("Path", find_document(before.path))
    document = read_document(file, before.path.resolve())
    if document.ignored is not None:
        raise TaskError(f"{before.path}: has both forms", hint=f"remove {document.ignored.name}")
    shutil.copytree(before.path, work, symlinks=True)
    (work / file.name).unlink()
    write(document, work)
    after, problems = read_task(work)
    if after is None:
        reasons = "\n".join(f"  {problem}" for problem in problems).replace(f"{work}{os.sep}", "")
        raise TaskError(f"{before.path}: would not load any more after the conversion\n{reasons}")
    written = read_document(cast("Path", find_document(work)), work.resolve()).raw
    if _content(before, document.raw) != _content(after, written):
        raise TaskError(
            f"{before.path}: would not survive the conversion unchanged",
            hint="look for links that lead through tests/ or solution/, and for folders that both forms use",
        )


def _check_target(source: Path, target: Path) -> None:
    if target.resolve().is_relative_to(source.resolve()):
        raise TaskError(f"{target}: lies inside the task itself", hint="name a folder elsewhere")
    if not target.name or (os.path.lexists(target) and (not target.is_dir() or any(target.iterdir()))):
        raise TaskError(f"{target}: exists and is not an empty folder", hint="name a new folder")


def _content(task: Task, raw: dict[str, object]) -> object:
    """Everything about a task but where it is and which form it has, fit for comparison."""
    data = _renamed(raw, {native: name for name, native in NATIVE_TABLES.items()})
    uploads = [
        [relative for _, relative in task.upload_files(kind, step)]
        for step in (None, *task.steps)
        for kind in ("tests", "solution")
    ]
    steps = [(step.name, step.instruction, step.workdir is None, step.setup_script is None) for step in task.steps]
    return (
        canonical(data),
        canonical(task.config.model_dump()),
        task.instruction,
        steps,
        uploads,
        task.trajectory is None,
    )


def canonical(value: object) -> object:
    """Plain data such that equal means the same: types count, the order of keys does not, NaN is equal to itself."""
    if isinstance(value, dict):
        return sorted((key, canonical(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    return f"{type(value).__name__} {value!r}"


def _renamed(raw: dict[str, object], names: dict[str, str]) -> dict[str, object]:
    return {names[key] if key in names and names[key] not in raw else key: value for key, value in raw.items()}


def _rename_folders(folder: Path, names: dict[str, str]) -> None:
    for old, new in names.items():
        if (folder / old).is_dir():
            if os.path.lexists(folder / new):
                raise TaskError(f"{folder.name}: has both {old}/ and {new}/", hint="remove one of the two")
            (folder / old).rename(folder / new)


def _yaml(raw: dict[str, object]) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the reader refuses aliases
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        # Other styles take U+0085 and its kin for line breaks, which readers then fold.
        plain = all(char.isprintable() or char == "\n" for char in value)
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else '"')

    Dumper.add_representer(str, text)
    _refuse_times(raw, ())
    return str(yaml.dump(raw, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)) if raw else ""


def _refuse_times(value: object, path: KeyPath) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_times(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_times(item, (*path, index))
    elif isinstance(value, dt.time):
        hint = "write it as text, in quotes"
        raise TaskError(f"{dotted(path)}: {value} is a time of day, which YAML does not have", hint=hint)
