"""How every command's typer app is made: plain help, plain errors, and completion only at the root."""

from __future__ import annotations

from typing import Any

import typer


def new_app(**settings: Any) -> typer.Typer:
    """A typer app with the settings that all of ours share. Rich is left out of help because it is slow to load."""
    return typer.Typer(
        **{
            "add_completion": False,
            "rich_markup_mode": None,
            "pretty_exceptions_enable": False,
            "context_settings": {"help_option_names": ["-h", "--help"]},
            **settings,
        }
    )
