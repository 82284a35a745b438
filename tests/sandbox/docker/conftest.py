"""Tests that ask for `backend` run with Docker and with Podman; `docker` sees what the engine itself has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiodocker
import pytest
import pytest_asyncio

from benchflow.sandbox.docker.backend import DockerBackend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SOCKETS = {"docker": "unix:///var/run/docker.sock", "podman": "unix:///run/podman/podman.sock"}


@pytest.fixture(
    params=[
        pytest.param("docker", marks=pytest.mark.needs("docker")),
        pytest.param("podman", marks=pytest.mark.needs("podman")),
    ]
)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Which engine; the backend finds it, and keeps its marks in a folder of its own."""
    name = str(request.param)
    monkeypatch.setenv("DOCKER_HOST", SOCKETS[name])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return name


@pytest_asyncio.fixture
async def backend(engine: str) -> AsyncIterator[DockerBackend]:
    made = DockerBackend()
    yield made
    await made.close()


@pytest_asyncio.fixture
async def docker(engine: str) -> AsyncIterator[aiodocker.Docker]:
    async with aiodocker.Docker(url=SOCKETS[engine]) as client:
        yield client
