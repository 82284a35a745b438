"""From a description to a `Task`: which files it stands on, and what is wrong with them.

Works as far as it can with a description that has errors of its own, so that one look reports everything.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from benchflow.task.document import INSTRUCTION_LIMIT
from benchflow.task.files import Unreadable, escape, fault, leaves, read_text, read_tree
from benchflow.task.problem import Problem, nearest_line
from benchflow.task.separate import find_box, judge_of
from benchflow.task.task import Form, Step, Task, script_name

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.task.document import Document
    from benchflow.task.model import TaskConfig
    from benchflow.task.problem import KeyPath
    from benchflow.task.steps import StepConfig
    from benchflow.task.verifier import Judge

INSTRUCTION_FILE = "instruction.md"
TRAJECTORY_FILE = "trajectory.json"
SETUP_SCRIPT = "setup.sh"

FOLDERS: dict[Form, dict[str, tuple[str, ...]]] = {
    "toml": {"tests": ("tests",), "solution": ("solution",)},
    "md": {"tests": ("verifier", "tests"), "solution": ("oracle", "solution")},
}
"""What the folders are called in each form: the first that exists is meant."""

_CANARY = re.compile(r"<!--.*canary.*-->|#.*canary.*", re.IGNORECASE)


def strip_canary(text: str) -> str:
    """An instruction without its leading canary comments and without leading blank lines."""
    lines = text.split("\n")
    start = 0
    while start < len(lines) and _CANARY.fullmatch(lines[start].strip()):
        start += 1
    while start < len(lines) and not lines[start].strip():
        start += 1
    return "\n".join(lines[start:])


def rubric_file(folder: Path, tests_dir: Path, judge: Judge) -> Path:
    """Where a judge's rubric is. A path that begins with `tests/` means the tests folder, whatever it is called."""
    head, _, rest = judge.rubric_path.partition("/")
    return tests_dir / rest if head in ("tests", "verifier") and rest else folder / judge.rubric_path


@dataclass(slots=True)
class Assembly:
    """One task being put together. Problems are appended to the list that was given."""

    folder: Path
    document: Document
    config: TaskConfig
    problems: list[Problem]
    _trees: dict[Path, set[str]] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.document.root

    def task(self) -> Task:
        """The task; worth having only if no problem is an error."""
        tests, solution = self._pick("tests", self.folder), self._pick("solution", self.folder)
        self._list(tests)
        self._list(solution)
        self._environment()
        if self.document.ignored is not None:
            self._warn(self.document.ignored, "is ignored beside task.toml", "one description")
        steps = tuple(self._step(step, tests, solution) for step in self.config.steps or ())
        if not steps:
            self._verifiable(None, tests, None)
        self._not_ignored(solution, script_name("solve", self.config.environment.os))
        return Task(
            path=self.folder,
            name=self.config.task.name if self.config.task else self.root.name or "task",
            form=self.document.form,
            config=self.config,
            instruction="" if steps else self._instruction(),
            steps=steps,
            environment_dir=self.folder / "environment",
            tests_dir=tests,
            solution_dir=solution,
            trajectory=self._trajectory(steps[0].path if steps else self.folder),
            warnings=tuple(self.problems),
        )

    def _pick(self, kind: str, base: Path) -> Path:
        names = FOLDERS[self.document.form][kind]
        found = [base / name for name in names if (base / name).is_dir()]
        if len(found) > 1:
            self._warn(found[1], f"is ignored beside {found[0].name}/", "one of the two")
        return found[0] if found else base / names[0]

    def _list(self, folder: Path, *, ignores: bool = True) -> set[str]:
        if folder not in self._trees:
            tree = read_tree(folder, self.root, ignores=ignores)
            self.problems += tree.problems
            self._trees[folder] = {relative for _, relative in tree.files}
        return self._trees[folder]

    def _environment(self) -> None:
        folder = self.folder / "environment"
        if folder.is_dir():
            if leaves(folder, self.root):
                self.problems.append(escape(folder))
        elif not self.config.environment.docker_image:
            what = "does not exist, and [environment].docker_image is not set"
            fix = "add environment/Dockerfile, or set docker_image"
            self.problems.append(fault(folder, "missing-environment", what, "one of the two", fix))

    def _instruction(self) -> str:
        if self.document.body is None:
            return self._read(self.folder / INSTRUCTION_FILE)
        text = strip_canary(self.document.body)
        if not text.strip():
            fix = "write what the agent is to do below the second '---'"
            self.problems.append(fault(self.document.file, "empty-instruction", "has no prompt", "a prompt", fix))
        return text

    def _read(self, file: Path) -> str:
        try:
            text = strip_canary(read_text(file, self.root, INSTRUCTION_LIMIT))
        except Unreadable as error:
            self.problems.append(error.problem)
            return ""
        if not text.strip():
            what, fix = "says nothing", "write what the agent is to do"
            self.problems.append(fault(file, "empty-instruction", what, "an instruction", fix))
        return text

    def _step(self, config: StepConfig, tests: Path, solution: Path) -> Step:
        path = self.folder / "steps" / config.name
        if not path.is_dir():
            index = self._written_at(config.name)
            what = f"steps[{index}].name: there is no folder steps/{config.name}"
            self._say(("steps", index, "name"), "missing-step", what, "a folder for each step", f"create {path}")
        elif not path.resolve().is_relative_to(self.root):  # steps/ itself may be a link
            self.problems.append(escape(path))
        else:
            instruction = self._read(path / INSTRUCTION_FILE)
            own_tests, own_solution = self._pick("tests", path), self._pick("solution", path)
            workdir = path / "workdir"
            for folder in (own_tests, own_solution):
                self._list(folder)
            self._list(workdir, ignores=False)
            self._verifiable(config, tests, own_tests if own_tests.is_dir() else None)
            solve = script_name("solve", self.config.environment.os)
            self._not_ignored(own_solution, solve)
            return Step(
                name=config.name,
                path=path,
                config=config,
                instruction=instruction,
                tests_dir=own_tests if own_tests.is_dir() else tests,
                solution_dir=own_solution if solve in self._list(own_solution) else solution,
                workdir=workdir if workdir.is_dir() else None,
                setup_script=workdir / SETUP_SCRIPT if SETUP_SCRIPT in self._list(workdir) else None,
            )
        return Step(config.name, path, config, "", tests, solution, None, None)

    def _written_at(self, name: str) -> int:
        """Which entry of the document a step is: faulty ones before it are missing from the configuration."""
        entries = cast("list[object]", self.document.raw["steps"])
        return next(
            index for index, entry in enumerate(entries) if isinstance(entry, dict) and entry.get("name") == name
        )

    def _verifiable(self, step: StepConfig | None, tests: Path, own: Path | None) -> None:
        """Something must be there to score with: a script, a rubric, or an image that brings its tests."""
        if (judge := judge_of(self.config, step)) is not None:
            self._rubric(rubric_file(self.folder, own or tests, judge))
            return
        environment = self.folder / "environment"
        box = find_box(self.config, step, environment_dir=environment, tests_dir=tests, step_tests_dir=own)
        if box is not None and box.brings_tests:
            return
        script = script_name("test", (box.config if box else self.config.environment).os)
        folders = [folder for folder in (own, tests) if folder is not None]
        if any(script in self._list(folder) for folder in folders):
            return
        left_out = [folder for folder in folders if self._not_ignored(folder, script)]
        if not left_out:
            fix = f"write {folders[0].name}/{script}; it puts the score in /logs/verifier/reward.txt"
            self.problems.append(fault(folders[0] / script, "missing-test", "does not exist", "the test script", fix))

    def _rubric(self, file: Path) -> None:
        try:
            inside = file.resolve().is_relative_to(self.root)
            found = file.is_file()
        except (OSError, ValueError):
            inside, found = True, False
        if not inside:
            self.problems.append(escape(file))
        elif not found:
            what, fix = "does not exist", "write the rubric, or set [verifier.judge].rubric_path"
            self.problems.append(fault(file, "missing-rubric", what, "the rubric of the judge", fix))

    def _not_ignored(self, folder: Path, script: str) -> bool:
        """Report an entry script that an ignore file leaves out; true if that is so."""
        file = folder / script
        ignored = script not in self._list(folder) and file.is_file()
        if ignored:
            what, fix = "is left out by .harborignore", "add a line '!" + script + "' to it"
            self.problems.append(fault(file, "ignored-script", what, "the entry script among the files", fix))
        return ignored

    def _trajectory(self, folder: Path) -> Path | None:
        file = folder / TRAJECTORY_FILE
        if not os.path.lexists(file):
            return None
        if leaves(file, self.root):
            self.problems.append(escape(file))
        elif not file.is_file():
            self.problems.append(fault(file, "not-a-file", "is not a file", "an ATIF document", "remove it"))
        return file

    def _say(self, path: KeyPath, code: str, what: str, expected: str, fix: str) -> None:
        line = nearest_line(path, self.document.lines())
        self.problems.append(fault(self.document.file, code, what, expected, fix, line=line))

    def _warn(self, file: Path, what: str, expected: str) -> None:
        self.problems.append(Problem(file, None, "warning", what, expected, "remove one of the two", "ignored-file"))
