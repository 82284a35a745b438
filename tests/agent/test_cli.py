"""`bench agent`, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


class Bench:
    """Runs the command line in a folder and a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "benchflow.cli.app", "agent", *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "COLUMNS": "200", **env},
        )


def test_list(bench: Bench) -> None:
    (bench.folder / ".env").write_text("OPENAI_API_KEY=very-secret\n")
    done = bench("list", GEMINI_API_KEY="very-secret")
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "claude" in lines["claude-agent-acp"]
    assert lines["codex-acp"].rstrip().endswith("OPENAI_API_KEY")
    assert lines["gemini"].rstrip().endswith("GEMINI_API_KEY")
    assert lines["oracle"].rstrip().endswith("ready")
    assert "acpx" not in lines
    assert "very-secret" not in done.stdout + done.stderr


def test_list_as_json(bench: Bench) -> None:
    rows = {row["name"]: row for row in json.loads(bench("list", "--json", CODEX_API_KEY="k").stdout)}
    assert rows["codex-acp"]["found"] == ["CODEX_API_KEY"]
    assert rows["claude-agent-acp"]["aliases"] == ["claude"]
    assert rows["claude-agent-acp"]["found"] == []
    assert rows["nop"]["protocol"] == "built-in"


def test_show(bench: Bench) -> None:
    done = bench("show", "acpx/claude@1.2.3")
    assert done.returncode == 0, done.stderr
    assert "@agentclientprotocol/claude-agent-acp@1.2.3" in done.stdout
    assert "run by         acpx" in done.stdout
    shown = json.loads(bench("show", "pi", "--json").stdout)
    assert (shown["installed"], shown["dialect"]) == (False, "openai-chat")


def test_mistakes_are_explained_without_a_traceback(bench: Bench) -> None:
    done = bench("show", "cluade")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no agent is called 'cluade'; did you mean claude?")
    assert "Traceback" not in done.stderr
    folder = bench.folder / ".config" / "benchflow" / "agents"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text('name = "mine"\n[lunch]\ncommand = ["x"]\n')
    done = bench("list")
    assert done.returncode == 1
    assert "mine.toml: unknown key 'lunch'; did you mean 'launch'?" in done.stderr
