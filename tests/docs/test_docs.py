"""Every command and every program in the documentation is run as it stands, file by file, in a folder of its own.

A model's provider is stood in for by a scripted one. Blocks marked `text` show something and are not run.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from benchflow.testing.model_server import ModelServer, Say

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in BLOCK.finditer(page.read_text(encoding="utf-8"))]


@pytest.mark.needs("local")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
async def test_every_block_runs(page: Path, tmp_path: Path) -> None:
    async with ModelServer([Say("There is nothing to do.")]) as server:
        environ = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "ANTHROPIC_API_KEY": "sk-stand-in-1",
            "ANTHROPIC_BASE_URL": server.url,
        }
        for language, code in blocks(page):
            if language == "toml":
                tomllib.loads(code)
            elif language in ("sh", "python"):
                command = ["bash", "-euo", "pipefail", "-c", code] if language == "sh" else [sys.executable, "-c", code]
                done = await asyncio.to_thread(
                    subprocess.run, command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, f"{page.name}:\n{code}\n{done.stdout}\n{done.stderr}"
            else:
                assert language in ("", "text"), f"{page.name}: a block of {language} is neither run nor marked as text"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_room_is_on_the_map() -> None:
    rooms = [
        path.name for path in (ROOT / "src" / "benchflow").iterdir() if path.name[0] != "_" and path.suffix != ".typed"
    ]
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    missing = [room for room in rooms if f"`{room}`" not in text and f"`{room}/`" not in text]
    assert missing == []
