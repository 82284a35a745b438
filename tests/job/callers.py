"""Tiny agents that really call a model, on accounts at scripted servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchflow.testing import agents

if TYPE_CHECKING:
    from pathlib import Path

SPEC = """\
name = "{name}"
dialect = "anthropic"

[launch]
command = ["{program}", "calling", {words}]

[[credentials]]
provider = "{provider}"
env = "{variable}_API_KEY"
base_url = "{variable}_BASE_URL"

[endpoint.env]
MODEL_URL = "{{base_url}}"
MODEL_KEY = "{{api_key}}"
MODEL = "{{model}}"
"""


def caller(folder: Path, *words: str, provider: str = "anthropic") -> str:
    """The file of an agent that calls its model; `words` are those of `benchflow.testing.agents.Calling`."""
    program = folder / "calling"
    if not program.exists():
        program.write_text("#!/usr/bin/env python3\n" + agents.SCRIPT.read_text())
        program.chmod(0o755)
    name = "-".join(["caller", *words]).replace("=", "-")
    text = SPEC.format(
        name=name,
        program=program,
        words=", ".join(f'"{word}"' for word in words),
        provider=provider,
        variable=provider.upper(),
    )
    (folder / f"{name}.toml").write_text(text)
    return str(folder / f"{name}.toml")
