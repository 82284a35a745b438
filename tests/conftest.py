"""What every test shares: the `needs` marker, which skips a test whose part of the machine is absent, and patience.

A skip names what is missing. With BENCHFLOW_REQUIRE=docker,local,... (or `all`) an absent part fails instead,
so that a continuous-integration run can never be green by skipping. No property is about how long an example takes:
on a busy machine any of them may take long.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from benchflow.locks import briefly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

settings.register_profile("patient", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


ROOTFS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchflow" / "test" / "bookworm.tar"
"""A small Debian root file system, for sandboxes that are made from a folder."""

HOST_ROOT = ROOTFS.with_name("host-root.lock")
"""Held alone while a test changes what this machine's own root holds, and shared by those that need it to stay."""


@pytest.fixture
def host_root_stays() -> Iterator[None]:
    """No other test process changes this machine's root meanwhile: layers that stand on it stay the same."""
    with briefly(HOST_ROOT, shared=True):
        yield


def _missing_command(*names: str) -> str:
    return "" if any(shutil.which(name) for name in names) else f"no {' or '.join(names)} on PATH"


def _missing_module(*names: str) -> str:
    absent = [name for name in names if importlib.util.find_spec(name) is None]
    return f"no module {' or '.join(absent)} (uv sync --all-extras)" if absent else ""


def _missing_engine(host: str) -> str:
    """Whether a Docker-compatible engine answers on this Unix socket."""
    path = host.removeprefix("unix://")
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(path)
            client.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return "" if b" 200 " in client.recv(64) else f"the engine on {path} does not answer as it should"
    except OSError as error:
        return f"no engine answers on {path}: {error.strerror or error}"


def _missing_local() -> str:
    from benchflow.errors import SandboxUnavailable
    from benchflow.sandbox.local.backend import LocalBackend

    async def check() -> str:
        backend = LocalBackend()
        try:
            await backend.check()
        except SandboxUnavailable as error:
            return error.message
        finally:
            await backend.close()
        return ""

    # In a thread of its own, because the event loop of this one belongs to the tests.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, check()).result()


PARTS: dict[str, Callable[[], str]] = {
    "docker": lambda: _missing_engine(os.environ.get("DOCKER_HOST", "/var/run/docker.sock")),
    "podman": lambda: _missing_engine("/run/podman/podman.sock"),
    "local": _missing_local,
    "rootfs": lambda: "" if ROOTFS.is_file() else f"no {ROOTFS} (scripts/docker-engine makes it)",
    "buildah": lambda: _missing_command("buildah"),
    "git": lambda: _missing_command("git"),
    "node": lambda: _missing_command("node"),
    "litellm": lambda: _missing_module("litellm", "mcp"),
    "browser": lambda: _missing_command("chromium") or _missing_module("playwright"),
}
"""Part name -> a probe that returns what is missing, or nothing."""


@cache
def missing(part: str) -> str:
    return PARTS[part]()


def pytest_runtest_setup(item: pytest.Item) -> None:
    required = os.environ.get("BENCHFLOW_REQUIRE", "").split(",")
    for mark in item.iter_markers("needs"):
        for part in mark.args:
            if reason := missing(part):
                if part in required or "all" in required:
                    pytest.fail(f"{part} is required here: {reason}", pytrace=False)
                pytest.skip(f"{part}: {reason}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which reward every cheat got, if the attacks were run: cheat x verifier x sandbox x user."""
    reports = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    found = [value for report in reports for name, value in report.user_properties if name == "attack"]
    columns = {one["column"]: one["rows"] for one in found}
    if not columns:
        return
    terminalreporter.section("rewards of cheats ('?': a pass that is not trusted; '-': the verifier failed)")
    keys = {f"{number:2}": column for number, column in enumerate(columns, start=1)}
    for key, column in keys.items():
        terminalreporter.write_line(f"{key}  {column}")
    names = dict.fromkeys(name for rows in columns.values() for name in rows)
    terminalreporter.write_line(f"{'':28}" + "".join(f"{key:>5}" for key in keys))
    for name in names:
        cells = (columns[column].get(name, "") for column in keys.values())
        terminalreporter.write_line(f"{name:28}" + "".join(f"{cell:>5}" for cell in cells))
