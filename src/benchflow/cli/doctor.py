"""`bench doctor`: what this machine can run, and the command that fixes what it cannot.

Values of credentials are never read further than whether they are set; only their names are printed.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchflow.cli.apps import new_app
from benchflow.cli.console import console, print_json
from benchflow.errors import BenchflowError
from benchflow.sandbox.probe import Check

if TYPE_CHECKING:
    from collections.abc import Iterable

LOW_DISK_GB = 10
"""Less free space than this is reported: images, layers and agent bundles need room."""

TOOL_TIMEOUT = 20.0
"""Seconds for a tool to say its version; one that takes longer counts as missing."""

app = new_app()


def _version(command: str) -> str:
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=TOOL_TIMEOUT, check=False)
    return (done.stdout or done.stderr).strip().partition("\n")[0] if done.returncode == 0 else ""


def _tool(command: str, use: str, fix: str) -> Check:
    path = shutil.which(command)
    try:
        version = _version(path) if path else ""
    except (OSError, subprocess.TimeoutExpired):
        version = ""
    return Check(command, bool(version), version or f"not found; {use}", "" if version else fix)


def check_host() -> list[Check]:
    """Python, the tools we call, and room to work in."""
    cache = cache_folder()
    free = shutil.disk_usage(next(folder for folder in (cache, *cache.parents) if folder.exists())).free / 1e9
    roomy = free >= LOW_DISK_GB
    return [
        Check("python", sys.version_info >= (3, 12), f"{platform.python_version()} ({sys.executable})"),
        _tool("git", "needed for tasks from repositories", "apt-get install git"),
        _tool("node", "not needed: agents bring their own; used by tests", "apt-get install nodejs"),
        Check(
            "disk",
            roomy,
            f"{free:.0f} GB free below {cache}",
            "" if roomy else "bench cleanup --images --older-than 7d",
        ),
    ]


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchflow"


def check_credentials() -> list[Check]:
    """Which credentials are found here, by name alone, and which agents they are for."""
    from benchflow.agent.catalog import load_agents
    from benchflow.agent.credentials import found_here, read_dotenv

    users: dict[str, list[str]] = {}
    try:
        dotenv = read_dotenv(Path.cwd())
        for spec in load_agents().values():
            for name in found_here(spec, os.environ, Path.home(), dotenv):
                users.setdefault(name, []).append(spec.name)
    except BenchflowError as error:  # a broken file of the user's must not hide what else there is to say
        return [Check("credentials", ok=False, detail=error.message, fix=error.hint or "correct or remove the file")]
    if not users:
        fix = "export ANTHROPIC_API_KEY=... (bench agent list names them all)"
        return [Check("credentials", ok=False, detail="none found; the oracle needs none", fix=fix)]
    return [Check(name, ok=True, detail=f"for {', '.join(agents)}") for name, agents in users.items()]


def check_caches() -> list[Check]:
    folder = cache_folder()
    kinds = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    return [Check("caches", ok=True, detail=f"{folder}: {', '.join(kinds) or 'empty'}")]


async def gather_checks() -> dict[str, list[Check]]:
    """Every finding, by the part of the machine it is about."""
    from benchflow.sandbox.docker.probe import probe as probe_docker
    from benchflow.sandbox.local.probe import probe as probe_local

    return {
        "machine": check_host(),
        "docker sandbox": list(await probe_docker()),
        "local sandbox": list(probe_local()),
        "credentials": check_credentials(),
        "caches": check_caches(),
    }


def _lines(checks: Iterable[Check]) -> Iterable[str]:
    from rich.markup import escape

    for check in checks:
        mark = "[green]OK     [/]" if check.ok else "[red]missing[/]"
        yield f"  {mark}  {check.name:<22} {escape(check.detail)}"
        if not check.ok and check.fix:
            yield f"           {'':<22} fix: [bold]{escape(check.fix)}[/]"


@app.command(epilog="Example: bench doctor --json")
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say what this machine can run, what is missing, and the command that fixes it."""
    found = asyncio.run(gather_checks())
    if as_json:
        print_json(
            {
                part: [{"name": c.name, "ok": c.ok, "detail": c.detail, "fix": c.fix} for c in checks]
                for part, checks in found.items()
            }
        )
        return
    for part, checks in found.items():
        console().print(f"[bold]{part}[/]")
        for line in _lines(checks):
            console().print(line, soft_wrap=True)
