"""A new task that already works: its solution earns 1.0, and everything in it is there to be replaced."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from benchflow.errors import TaskError
from benchflow.task.onefile import migrate
from benchflow.task.steps import name_fault

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.task.task import Form

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_TASK = """\
schema_version = "1.4"

[metadata]
difficulty = "easy"
category = "example"
tags = ["example"]

[agent]
timeout_sec = 600.0

[verifier]
timeout_sec = 120.0

[environment]
build_timeout_sec = 600.0
cpus = 1
memory_mb = 1024
network_mode = "public"
"""

_INSTRUCTION = """\
Write a file `/app/hello.txt` that holds exactly one line: `Hello, world!`
"""

_DOCKERFILE = """\
FROM debian:bookworm-slim

# What the task needs goes here: packages, data, a user. Tests and solution never do.
WORKDIR /app
"""

_TEST = """\
#!/bin/sh
# Runs after the agent. Its exit code does not count: the score is what it writes to /logs/verifier/reward.txt,
# a number from 0 to 1 (or several, as an object, to reward.json).
mkdir -p /logs/verifier

if [ "$(cat /app/hello.txt 2>/dev/null)" = "Hello, world!" ]; then
    echo "hello.txt is right"
    echo 1 > /logs/verifier/reward.txt
else
    echo "hello.txt is missing or wrong"
    echo 0 > /logs/verifier/reward.txt
fi
"""

_SOLVE = """\
#!/bin/sh
# The reference solution, run by the agent called "oracle". It must earn 1.0.
set -eu

echo "Hello, world!" > /app/hello.txt
"""

_FILES = {
    "task.toml": _TASK,
    "instruction.md": _INSTRUCTION,
    "environment/Dockerfile": _DOCKERFILE,
    "tests/test.sh": _TEST,
    "solution/solve.sh": _SOLVE,
}


def init_task(name: str, parent: Path, form: Form = "toml") -> Path:
    """Make the task `name` in folder `parent` and return its folder.

    Raises TaskError when the name cannot be a task's or something is there already; then nothing is changed.
    """
    fault = "has characters other than letters, digits, '.', '_' and '-'" if not _NAME.fullmatch(name) else ""
    if fault := name_fault(name) or fault:
        raise TaskError(f"{name!r} cannot be the name of a task: it {fault}", hint="use a name such as my-task")
    folder = parent / name
    try:
        if folder.is_symlink() or folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
            raise TaskError(f"{folder}: is there already", hint="choose another name, or remove it")
        if form == "md":
            return _init_md(folder)
        _write(folder)
    except OSError as error:
        raise TaskError(f"{folder}: cannot be made: {error.strerror or error}") from error
    return folder


def _write(folder: Path) -> None:
    for name, text in _FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        if file.suffix == ".sh":
            file.chmod(0o755)


def _init_md(folder: Path) -> Path:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / folder.name
        _write(draft)
        return migrate(draft, folder)
