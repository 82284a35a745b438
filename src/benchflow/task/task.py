"""A loaded task: what is to be solved, where its files are, and what is uploaded of them.

A `Task` is immutable and always valid when it comes from the loader; both forms on disk give the same object. Paths
point to where things would be, whether they are there or not; `None` is used where absence means something.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchflow.task.files import read_tree
from benchflow.task.problem import InvalidTask

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.task.model import TaskConfig
    from benchflow.task.problem import Problem
    from benchflow.task.steps import StepConfig

Form = Literal["toml", "md"]
Upload = Literal["tests", "solution"]


@dataclass(frozen=True, slots=True)
class Step:
    """One act of a multi-step task, with what it takes from the task already resolved."""

    name: str
    path: Path
    config: StepConfig
    instruction: str
    tests_dir: Path
    """The step's own, or the shared one."""
    solution_dir: Path
    """The step's own when it has a script to run, or the shared one."""
    workdir: Path | None
    """What is copied into the sandbox's working folder before the step."""
    setup_script: Path | None
    """Run inside, after the copy and before the agent."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task as its folder describes it. `instruction` is empty when there are steps: each has its own."""

    path: Path
    name: str
    form: Form
    config: TaskConfig
    instruction: str
    steps: tuple[Step, ...]
    environment_dir: Path
    tests_dir: Path
    solution_dir: Path
    trajectory: Path | None
    """Prior context for the agent, as an ATIF document."""
    warnings: tuple[Problem, ...] = ()

    @property
    def short_name(self) -> str:
        """The name without its organisation."""
        return self.name.rpartition("/")[2]

    @property
    def test_script(self) -> str:
        return script_name("test", self.config.environment.os)

    @property
    def solve_script(self) -> str:
        return script_name("solve", self.config.environment.os)

    def upload_files(self, kind: Upload, step: Step | None = None) -> list[tuple[Path, str]]:
        """What goes to `/tests` or `/solution`, as (file, path below it), sorted, after the ignore files.

        The tests of a step lie over the shared ones; a step's solution stands alone. Raises InvalidTask when the
        files have changed into something that must not be uploaded.
        """
        if kind == "solution":
            folders = [step.solution_dir if step else self.solution_dir]
        else:
            folders = [self.tests_dir, *([step.tests_dir] if step and step.tests_dir != self.tests_dir else [])]
        trees = [read_tree(folder, self.path.resolve()) for folder in folders]
        problems = [problem for tree in trees for problem in tree.problems if problem.severity == "error"]
        if problems:
            raise InvalidTask(self.path, problems)
        merged = {relative: file for tree in trees for file, relative in tree.files}
        return [(file, relative) for relative, file in sorted(merged.items())]


def script_name(stem: str, system: str) -> str:
    """The entry script by target system: only `.sh` on Linux, only `.bat` on Windows."""
    return f"{stem}.bat" if system == "windows" else f"{stem}.sh"
