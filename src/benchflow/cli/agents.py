"""`bench agents`: the short form of `bench agent list`."""

from __future__ import annotations

from benchflow.cli.agent import list_agents
from benchflow.cli.apps import new_app

app = new_app()
app.command(epilog="Example: bench agents --json")(list_agents)
