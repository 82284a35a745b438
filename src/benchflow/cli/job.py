"""`bench job`: the short form of `bench eval create` for many tasks."""

from __future__ import annotations

import typer

from benchflow.cli.eval import EXAMPLES, create

app = typer.Typer(
    rich_markup_mode=None, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)
app.command(epilog=EXAMPLES.replace("bench eval create", "bench job"))(create)
