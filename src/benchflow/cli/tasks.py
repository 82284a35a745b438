"""`bench tasks`: make, check and convert tasks."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from benchflow.cli.apps import new_app
from benchflow.cli.attack import EPILOG, attack
from benchflow.cli.console import print_json

app = new_app(
    help="Make, check and convert tasks.",
    no_args_is_help=True,
)


class Format(StrEnum):
    """The two forms of a task on disk."""

    toml = "toml"
    md = "md"


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Folders = Annotated[list[Path], typer.Argument(help="Tasks, or folders of tasks.", metavar="DIR", show_default=False)]


@app.command(
    epilog="""
Examples:

\b
  bench tasks init my-task
  bench tasks init my-task --format md --dir tasks
"""
)
def init(
    name: Annotated[str, typer.Argument(help="Name of the task and of its folder.", show_default=False)],
    form: Annotated[
        Format, typer.Option("--format", help="toml: task.toml and instruction.md; md: one task.md.")
    ] = Format.toml,
    parent: Annotated[Path, typer.Option("--dir", help="Where the folder is made.")] = Path(),
    as_json: Json = False,
) -> None:
    """Make a task that works, to be changed into yours."""
    from benchflow.task.scaffold import init_task

    folder = init_task(name, parent, form.value)
    _say_made(folder, form.value, as_json=as_json)
    if not as_json:
        typer.echo(f"  check it:          bench tasks check {folder}")
        typer.echo(f"  run its solution:  bench run -t {folder} -a oracle")


@app.command(
    epilog="""
Prints one line for each problem, file:line: what is wrong; what is expected; how to fix it. Exits 1 if there is an
error; a warning is not one.

Examples:

\b
  bench tasks check my-task
  bench tasks check tasks/ --json
"""
)
def check(folders: Folders, as_json: Json = False) -> None:
    """Say everything that is wrong with tasks, at once."""
    from benchflow.task.check import check_task, expand

    found = {folder: check_task(folder) for folder in expand(folders)}
    problems = [problem for listed in found.values() for problem in listed]
    errors = sum(problem.severity == "error" for problem in problems)
    if as_json:
        tasks = [
            {
                "path": str(folder),
                "ok": all(problem.severity != "error" for problem in listed),
                "problems": [problem.as_json() for problem in listed],
            }
            for folder, listed in found.items()
        ]
        print_json({"checked": len(found), "errors": errors, "warnings": len(problems) - errors, "tasks": tasks})
    else:
        for problem in problems:
            typer.echo(problem)
        counts = f"{_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}"
        typer.echo(f"{_count(len(found), 'task')} checked: {counts}")
    if errors:
        raise typer.Exit(1)


@app.command(
    epilog="""
Comments in task.toml do not survive; everything else does. The source is left as it is.

Examples:

\b
  bench tasks migrate tasks/my-task tasks-md/my-task
"""
)
def migrate(
    source: Annotated[Path, typer.Argument(help="A task with task.toml.", show_default=False)],
    target: Annotated[Path, typer.Argument(help="A folder that is new or empty.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Convert a task.toml task into the one-file form, task.md."""
    from benchflow.task.onefile import migrate as convert

    _say_made(convert(source, target), "md", as_json=as_json)


@app.command(
    epilog="""
The result is a Harbor task. Comments in the front matter do not survive; everything else does. The source is left as
it is.

Examples:

\b
  bench tasks export tasks-md/my-task tasks/my-task
"""
)
def export(
    source: Annotated[Path, typer.Argument(help="A task with task.md.", show_default=False)],
    target: Annotated[Path, typer.Argument(help="A folder that is new or empty.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Convert a task.md task into task.toml and instruction.md."""
    from benchflow.task.onefile import export as convert

    _say_made(convert(source, target), "toml", as_json=as_json)


@app.command(
    epilog="""
The digest covers the files that make the task, after .harborignore and .gitignore; it is the one that locks, packages
and datasets use.

Examples:

\b
  bench tasks digest my-task
  bench tasks digest tasks/ --json
"""
)
def digest(folders: Folders, as_json: Json = False) -> None:
    """Print the content digest of tasks."""
    from benchflow.task.check import expand
    from benchflow.task.digest import task_digest

    digests = {str(folder): task_digest(folder) for folder in expand(folders)}
    if as_json:
        print_json(digests)
        return
    for folder, value in digests.items():
        typer.echo(f"{value}  {folder}")


def _say_made(folder: Path, form: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"path": str(folder), "format": form})
    else:
        typer.echo(f"made {folder}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


app.command(epilog=EPILOG)(attack)
