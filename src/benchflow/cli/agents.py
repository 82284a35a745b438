"""`bench agents`: the short form of `bench agent list`."""

from __future__ import annotations

import typer

from benchflow.cli.agent import list_agents

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog="Example: bench agents --json")(list_agents)
