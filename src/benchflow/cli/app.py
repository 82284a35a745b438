"""The root of `bench`: a table of commands, each imported only when it is the one that runs.

`bench --help`, `bench --version` and shell completion of the first word load nothing but typer.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

import benchflow
from benchflow.cli.apps import new_app
from benchflow.cli.console import print_error
from benchflow.errors import BenchflowError

if TYPE_CHECKING:
    from collections.abc import Callable

COMMANDS: dict[str, tuple[str, str]] = {
    "eval": ("benchflow.cli.eval", "Run an evaluation and look at what came out."),
    "run": ("benchflow.cli.run", "Run one task: the short form of eval create."),
    "job": ("benchflow.cli.job", "Run many tasks: the short form of eval create."),
    "metrics": ("benchflow.cli.metrics", "Say what the results in a folder add up to."),
    "replay": ("benchflow.cli.replay", "Run a recorded rollout again, without a provider."),
    "view": ("benchflow.cli.view", "Read one rollout in the browser."),
    "tasks": ("benchflow.cli.tasks", "Make, check and convert tasks."),
    "sandbox": ("benchflow.cli.sandbox", "See what runs, and clean up what was left behind."),
    "agent": ("benchflow.cli.agent", "List the registered agents and show one."),
    "agents": ("benchflow.cli.agents", "The short form of agent list."),
    "cleanup": ("benchflow.cli.cleanup", "Remove sandboxes whose owner died; with --images also caches."),
    "doctor": ("benchflow.cli.doctor", "Say what this machine can run, and how to fix what it cannot."),
}
"""Command name -> (module with a typer `app`, one line of help)."""

EXAMPLES = """
Examples:

\b
  bench doctor                          what can this machine run?
  bench eval create -t my-task -a oracle    run the task's own solution
  bench tasks init my-task              scaffold a task
  bench tasks check my-task             every problem at once
  bench cleanup --dry-run               what did a crashed run leave?
"""


class LazyGroup(TyperGroup):
    """Lists commands from the table; imports a command's module when it is about to run."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name in COMMANDS:
            command = typer.main.get_command(importlib.import_module(COMMANDS[name][0]).app)
        return name, command, rest


app = new_app(
    cls=LazyGroup,
    help="Run AI agents against benchmark tasks: any ACP agent, any model, any sandbox.",
    epilog=EXAMPLES,
    no_args_is_help=True,
    add_completion=True,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"benchflow {benchflow.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _placeholder() -> Callable[[], None]:
    return lambda: None


for _name, (_, _help) in COMMANDS.items():
    app.command(_name, help=_help)(_placeholder())


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123  for the rest of this process


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}


def main() -> None:
    """Entry point of `bench` and `benchflow`. A mistake of the user ends with a message, never with a traceback."""
    # Whoever closed an output does not want it.
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except BenchflowError as error:
        print_error(error)
        sys.exit(1)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        # What is still to be written would fail once more, without a word that helps, as the program ends.
        sys.stdout = _nowhere()
        print_error(f"{error.filename or 'the output'} cannot be written: {error.strerror}")
        sys.exit(1)


if __name__ == "__main__":
    main()
