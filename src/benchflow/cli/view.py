"""`bench view`: a rollout or a job as a page, written as one file or served on loopback."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from benchflow.cli.apps import new_app
from benchflow.cli.console import err_console
from benchflow.errors import ConfigError

app = new_app()


@app.command(epilog="Example: bench view jobs/2026-01-01__10-00-00/write-a-file__1a2b3c4d")
def view(
    folder: Annotated[Path, typer.Argument(help="A rollout's folder, or a job's.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the page here and exit, instead of serving it.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in the default browser.")] = False,
) -> None:
    """Show a rollout (what was asked, said and done, with its score) or the rollouts of a job, as a page.

    Read again at each reload.
    """
    from benchflow.view.folder import page_of

    page = page_of(folder)
    if output:
        try:
            output.write_text(page, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{output} cannot be written: {error.strerror}", hint="choose another with -o") from None
        err_console().print(f"wrote {output}")
        return
    from benchflow.view.serve import serve

    def announce(url: str) -> None:
        err_console().print(f"serving {folder} at {url} (Ctrl-C ends it)")
        if open_browser:
            webbrowser.open(url)

    serve(folder, port, announce)
