"""`bench sandbox list` and `bench sandbox cleanup`: what runs, whose it is, and what was left behind."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from benchflow.cli.apps import new_app
from benchflow.cli.cleanup import Cleaned, cleanup, usable_backends
from benchflow.cli.console import console, err_console, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from benchflow.sandbox.base import SandboxInfo

COLUMNS = ("id", "backend", "job", "rollout", "owner", "age", "state")

app = new_app(
    no_args_is_help=True,
    help="See what runs, and clean up what was left behind.",
)
app.command("cleanup", epilog="Example: bench sandbox cleanup --dry-run")(cleanup)


def human_age(seconds: float) -> str:
    """The two largest units: `42s`, `5m 3s`, `2h 10m`, `3d 4h`."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts or unit == "s":
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


async def listing() -> tuple[list[SandboxInfo], list[Cleaned]]:
    """Every sandbox of ours on this machine, oldest first, and the backends that could not be asked."""
    from benchflow.sandbox.registry import close_backends

    try:
        usable, skipped = await usable_backends()
        found = [info for backend in usable for info in await backend.list()]
        return sorted(found, key=lambda info: info.created), skipped
    finally:
        await close_backends()


def _table(found: list[SandboxInfo]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, overflow="fold")
    for info in found:
        owner = f"{info.owner_pid}" if info.owner_alive else f"{info.owner_pid} (dead)"
        age = human_age(time.time() - info.created)
        cells = (info.id, info.backend, info.job, info.rollout, owner, age, info.state)
        table.add_row(*(Text(cell) for cell in cells), style=None if info.owner_alive else "yellow")
    return table


@app.command("list", epilog="Example: bench sandbox list --json")
def list_sandboxes(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show every sandbox of ours on this machine, and whether its owner still runs."""
    found, skipped = asyncio.run(listing())
    if as_json:
        print_json(
            {
                "sandboxes": [asdict(info) for info in found],
                "skipped": {each.backend: each.skipped for each in skipped},
            }
        )
        return
    for each in skipped:
        err_console().print(f"skipped {each.skipped}", markup=False, soft_wrap=True)
    if not found:
        console().print("no sandboxes")
        return
    console().print(_table(found))
    orphans = sum(not info.owner_alive for info in found)
    if orphans:
        err_console().print(f"{orphans} without an owner: bench cleanup")
