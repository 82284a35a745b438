"""`bench run`: the short form of `bench eval create` for one task."""

from __future__ import annotations

from benchflow.cli.apps import new_app
from benchflow.cli.eval import EXAMPLES, create

app = new_app()
app.command(epilog=EXAMPLES.replace("bench eval create", "bench run"))(create)
