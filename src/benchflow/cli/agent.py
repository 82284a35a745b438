"""`bench agent list` and `bench agent show`: who can run, and whether a credential for it is found here.

Credentials are named, never shown.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchflow.cli.apps import new_app
from benchflow.cli.console import console, print_json

if TYPE_CHECKING:
    from benchflow.agent.spec import AgentSpec

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

app = new_app(
    no_args_is_help=True,
    help="List the registered agents and show one.",
)


@app.command("list", epilog="Example: bench agent list --json")
def list_agents(as_json: AsJson = False) -> None:
    """List the registered agents: protocol, auth, aliases, and the credentials found here."""
    from benchflow.agent.catalog import load_agents

    rows = [_summary(spec) for spec in load_agents().values()]
    if as_json:
        print_json(rows)
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("agent", "version", "protocol", "auth", "aliases", "found here"):
        table.add_column(column, no_wrap=column == "agent")
    for row in rows:
        table.add_row(
            str(row["name"]),
            str(row["version"]),
            str(row["protocol"]),
            _words(row["auth"], "none needed"),
            _words(row["aliases"], "-"),
            _words(row["found"], "-" if row["auth"] else "ready"),
        )
    console().print(table)


@app.command("show", epilog="Example: bench agent show claude")
def show_agent(
    name: Annotated[str, typer.Argument(help="A name, an alias, name@version, acpx/NAME, a TOML file or a command.")],
    as_json: AsJson = False,
) -> None:
    """Show everything that is known about one agent."""
    from benchflow.agent.catalog import get_agent

    spec = get_agent(name)
    document = {**_summary(spec), "run_by": spec.through.name if spec.through else "", **_details(spec)}
    if as_json:
        print_json(document)
        return
    for key, value in document.items():
        if value not in ("", [], {}, None, ()):
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            console().print(f"{key.replace('_', ' '):<14} {text}", markup=False, soft_wrap=True)


def _summary(spec: AgentSpec) -> dict[str, object]:
    from benchflow.agent.credentials import found_here, read_dotenv

    return {
        "name": spec.ref,
        "version": spec.version,
        "protocol": spec.protocol,
        "auth": list(spec.auth),
        "aliases": list(spec.aliases),
        "found": found_here(spec, os.environ, Path.home(), read_dotenv(Path.cwd())),
        "description": spec.description,
    }


def _details(spec: AgentSpec) -> dict[str, object]:
    from benchflow.agent.bundle import bundle_name, bundle_root
    from benchflow.agent.platforms import host_platform

    bundle = bundle_root() / bundle_name(spec, host_platform()) if spec.install.packages else None
    return {
        "packages": list(spec.install.packages),
        "node": spec.install.node,
        "python": spec.install.python,
        "command": list(spec.launch.command),
        "dialect": spec.dialect or "",
        "model": spec.session.model,
        "bundle": str(bundle) if bundle else "",
        "installed": bool(bundle and bundle.is_dir()),
        "skills": [*(f"~/{path}" for path in spec.skills.home), *spec.skills.workspace],
    }


def _words(value: object, empty: str) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) and value else empty
