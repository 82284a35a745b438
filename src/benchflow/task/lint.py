"""Advice about a task: mistakes that would only show when it runs, or when its score is looked at.

Each rule is a function from the task to problems and reads its files bounded. An error here means that a run cannot
give a score; everything else is a warning.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from benchflow.task.assemble import INSTRUCTION_FILE
from benchflow.task.files import Unreadable, read_text, unreadable
from benchflow.task.lint_config import lint_config
from benchflow.task.network import effective
from benchflow.task.problem import InvalidTask, Problem
from benchflow.task.separate import BUILD_FILES, COMPOSE_FILE, judge_of, verifier_box

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchflow.task.problem import Severity
    from benchflow.task.task import Step, Task

SCRIPT_LIMIT = 1024 * 1024
"""Bytes of a script or another file that the checks look into; a longer one is not looked into."""

FILES_LIMIT = 200
"""Files of the tests that are searched for a reward."""

TRAJECTORY_LIMIT = 64 * 1024 * 1024
"""Bytes of a prior trajectory."""

_COPY = re.compile(r"\s*(?:COPY|ADD)\s+(?P<rest>.*)", re.IGNORECASE)
_FROM = re.compile(r"\s*FROM\s+\S", re.IGNORECASE)
_HIDDEN = re.compile(r"(^|[\s\"'\[/])(tests?|solution|verifier|oracle|solve\.sh|test\.sh)(/|[\s\"',\]]|$)")
_REWARD = re.compile(r"\breward\.(?:txt|json)\b")
_DOWNLOAD = re.compile(r"\b(?:apt-get|apt|pip3?|npm|uv|uvx|curl|wget|git clone)\b")


def lint_task(task: Task) -> list[Problem]:
    """Every piece of advice. Never raises."""
    rules = (_environment, _scripts, _rewards, _solution, _steps, _prior_context, lint_config)
    problems: list[Problem] = []
    for rule in rules:
        try:
            problems += rule(task)
        except InvalidTask:
            continue  # loading it has said so already
        except Unreadable as error:
            problems.append(error.problem)
        except OSError as error:
            problems.append(unreadable(task.path, error))
    return problems


def _say(
    file: Path,
    code: str,
    what: str,
    expected: str,
    fix: str,
    *,
    line: int | None = None,
    severity: Severity = "warning",
) -> Problem:
    return Problem(file, line, severity, what, expected, fix, code)


def _text(task: Task, file: Path, limit: int = SCRIPT_LIMIT) -> str:
    """A file's text, or nothing when it is too long or not text: then there is nothing to say about it."""
    try:
        return read_text(file, task.path.resolve(), limit)
    except Unreadable:
        return ""


def _environment(task: Task) -> Iterator[Problem]:
    folder = task.environment_dir
    dockerfile, compose = folder / "Dockerfile", folder / COMPOSE_FILE
    if dockerfile.is_file():
        yield from _dockerfile(dockerfile, _text(task, dockerfile))
    if compose.is_file():
        yield from _compose(compose, _text(task, compose))
    if not task.config.environment.docker_image and not any((folder / name).is_file() for name in BUILD_FILES):
        yield _say(
            dockerfile,
            "missing-dockerfile",
            "does not exist, and [environment].docker_image is not set",
            "a way to make the sandbox",
            "write environment/Dockerfile",
            severity="error",
        )


def _dockerfile(file: Path, text: str) -> Iterator[Problem]:
    lines = text.splitlines()
    if not any(_FROM.match(line) for line in lines):
        what, fix = "has no FROM line", "begin with a line such as FROM debian:bookworm-slim"
        yield _say(file, "bad-dockerfile", what, "an image to start from", fix, severity="error")
    for number, line in enumerate(lines, 1):
        match = _COPY.match(line)
        sources = match["rest"].split()[:-1] if match else []
        if any(_HIDDEN.search(source) for source in sources if not source.startswith("--")):
            what = "copies tests or a solution into the agent's image"
            expected = "an image without them; they are uploaded when they are needed"
            yield _say(file, "answer-in-image", what, expected, "remove the line", line=number)


def _compose(file: Path, text: str) -> Iterator[Problem]:
    from benchflow.task.yaml_text import YamlFault, check_syntax

    try:
        check_syntax(text)
    except YamlFault as error:
        yield _say(file, "bad-yaml", error.what, error.expected, error.fix, line=error.line, severity="error")


def _scripts(task: Task) -> Iterator[Problem]:
    if task.config.environment.os == "windows":
        return
    files = [task.tests_dir / task.test_script, task.solution_dir / task.solve_script]
    for step in task.steps:
        files += [step.tests_dir / task.test_script, step.solution_dir / task.solve_script]
        files += [step.setup_script] if step.setup_script else []
    for file in dict.fromkeys(files):
        if file.is_file():
            yield from _script(file, _text(task, file))


def _script(file: Path, text: str) -> Iterator[Problem]:
    expected = "a script that begins with a line such as #!/bin/bash"
    if not text.strip():
        what, fix = "is empty, too long or not text", "write the script"
        yield _say(file, "empty-script", what, expected, fix, severity="error")
    elif not text.startswith("#!"):
        yield _say(file, "no-shebang", "does not begin with '#!'", expected, "add that line", line=1)
    if "\r\n" in text:
        number = text[: text.index("\r\n")].count("\n") + 1
        what, fix = "has Windows line ends, which a Linux shell trips over", "convert it, as with: sed -i 's/\\r$//'"
        yield _say(file, "crlf", what, "lines that end in LF", fix, line=number, severity="error")


def _rewards(task: Task) -> Iterator[Problem]:
    steps: list[Step | None] = [*task.steps] or [None]
    for step in steps:
        box = verifier_box(task, step)
        if judge_of(task.config, step.config if step else None) or (box is not None and box.brings_tests):
            continue
        script = (step.tests_dir if step else task.tests_dir) / task.test_script
        files = task.upload_files("tests", step)[:FILES_LIMIT]
        if files and not any(_REWARD.search(_text(task, file)) for file, _ in files):
            what = "neither reward.txt nor reward.json is written anywhere in the tests"
            fix = "write the score to /logs/verifier/reward.txt; the exit code does not count"
            yield _say(script, "no-reward", what, "a test script that leaves a score", fix)
        baseline = box.config.network if box else task.config.environment.network
        overrides = (step.config.verifier, task.config.verifier) if step else (task.config.verifier,)
        if effective(baseline, *overrides).mode == "no-network":
            yield from _downloads(script, _text(task, script))


def _downloads(file: Path, text: str) -> Iterator[Problem]:
    for number, line in enumerate(text.splitlines(), 1):
        if (match := _DOWNLOAD.search(line.partition("#")[0])) is not None:
            what = f"runs {match[0]!r}, but the verifier has no network"
            fix = "put it in the image, or give the verifier a network"
            yield _say(file, "offline-download", what, "a script that needs no network", fix, line=number)
            return


def _solution(task: Task) -> Iterator[Problem]:
    folders = [step.solution_dir for step in task.steps] or [task.solution_dir]
    for folder in dict.fromkeys(folders):
        if not (folder / task.solve_script).is_file():
            what, expected = "does not exist", "a reference solution, so that the oracle can show the task is solvable"
            yield _say(folder / task.solve_script, "no-solution", what, expected, "write one that earns 1.0")


def _steps(task: Task) -> Iterator[Problem]:
    folder = task.path / "steps"
    names = {step.name for step in task.steps}
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.is_dir() and path.name not in names:
                what, expected = "no step has this name, so the folder is not used", "a [[steps]] entry for each folder"
                yield _say(path, "unused-step", what, expected, f'add [[steps]] with name = "{path.name}"')
    instruction = task.path / INSTRUCTION_FILE
    if instruction.is_file() and (task.steps or task.form == "md"):
        owner = "each step has its own" if task.steps else "the prompt is in task.md"
        yield _say(instruction, "unused-file", f"is not used: {owner}", "no second instruction", "remove it")


def _prior_context(task: Task) -> Iterator[Problem]:
    if task.trajectory is None:
        return
    try:
        document = json.loads(read_text(task.trajectory, task.path.resolve(), TRAJECTORY_LIMIT))
    except (ValueError, RecursionError) as error:
        what, fix = f"is not valid JSON: {error}", "export it again"
        line = getattr(error, "lineno", None)
        yield _say(task.trajectory, "bad-trajectory", what, "an ATIF document", fix, line=line, severity="error")
        return
    version = document.get("schema_version", "ATIF") if isinstance(document, dict) else ""
    if not str(version).startswith("ATIF") or not document.get("steps"):
        what, fix = "is not an ATIF document with steps", "export it again"
        yield _say(task.trajectory, "bad-trajectory", what, "an ATIF document", fix, severity="error")
