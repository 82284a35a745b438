"""`bench metrics` (also `bench eval metrics`): what the results in a folder add up to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from benchflow.cli.apps import new_app
from benchflow.cli.console import console, fail, print_json

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]

app = new_app()


def metrics(
    folder: Annotated[Path, typer.Argument(help="A job's folder, or a folder of jobs.")] = Path("jobs"),
    benchmark: Annotated[str, typer.Option(help="What to call it; default: the folder's name.")] = "",
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print one line for each agent and model.")] = False,
) -> None:
    """Passed, scored and lost with an interval, pass@k, time, cost and errors."""
    if as_json and as_csv:
        fail("--json or --csv, not both", code=2)
    from benchflow.job.metrics import collect_metrics

    found = collect_metrics(folder, benchmark)
    if as_json:
        print_json(found.to_json())
    elif as_csv:
        sys.stdout.write(found.to_csv())
    else:
        console().print(found.summary(), markup=False, soft_wrap=True)


app.command(epilog="Examples: bench metrics jobs/ · bench metrics jobs/mine --csv")(metrics)
