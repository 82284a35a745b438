from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import SandboxBuildError
from benchflow.sandbox.base import BuildContext, ImageRef, Network
from benchflow.sandbox.local.engine import BoxSpec, Engine
from benchflow.sandbox.local.image import Image, release_images, resolve_image

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

BASE = "debian:bookworm-slim"

SOCKETS = {
    "docker": os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"),
    "podman": "unix:///run/podman/podman.sock",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BENCHFLOW_LOCAL_DIR", raising=False)
    monkeypatch.delenv("BENCHFLOW_LOCAL_BASE", raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    return tmp_path / "cache" / "benchflow" / "local"


@pytest.fixture(
    params=[
        pytest.param("docker", marks=pytest.mark.needs("docker")),
        pytest.param("podman", marks=pytest.mark.needs("podman")),
    ]
)
def socket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A container engine that answers."""
    monkeypatch.setenv("DOCKER_HOST", SOCKETS[request.param])
    return str(request.param)


@asynccontextmanager
async def local_engine() -> AsyncIterator[Engine]:
    engine = Engine()
    try:
        yield engine
    finally:
        await engine.close()
        release_images(engine)


async def run(engine: Engine, image: Image, command: str) -> str:
    box = await engine.start_box(BoxSpec(name="look", layers=image.layers, network=Network("no-network")))
    try:
        result = await box.exec(command, env=image.env, cwd=image.workdir, user=image.user)
        assert result.ok, result.stderr
        return result.text
    finally:
        await box.stop()


@pytest.mark.needs("local")
@pytest.mark.usefixtures("socket")
async def test_an_image_is_exported_once_and_then_needs_no_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log: list[str] = []
    async with local_engine() as engine:
        image = await resolve_image(ImageRef(BASE), engine=engine, log=log.append)
        assert image.notes == ()
        assert log == [f"exporting {BASE} (once)"]
        assert (await run(engine, image, "id -u && stat -c %U /var/mail /root")).split() == ["0", "root", "root"]
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    async with local_engine() as engine:
        again = await resolve_image(ImageRef(f"docker.io/library/{BASE}"), engine=engine, log=log.append)
        assert again == image
        assert len(log) == 1


@pytest.mark.needs("local", "docker")
async def test_what_cannot_be_pulled_is_stood_in_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", SOCKETS["docker"])
    async with local_engine() as engine:
        image = await resolve_image(ImageRef("localhost:1/not/there:1"), engine=engine)
    assert "FROM localhost:1/not/there:1 could not be had (" in image.notes[0]
    assert image.notes[0].endswith("); the host's root stands in")
    assert "\n" not in image.notes[0]


STAGES = f"""
FROM {BASE} AS build
RUN echo made > /made
FROM {BASE}
ENV WHO=me
WORKDIR /w
COPY --from=build /made .
USER nobody
"""


@pytest.mark.needs("local")
@pytest.mark.usefixtures("socket")
async def test_several_stages_go_to_the_container_engine(tmp_path: Path) -> None:
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "Dockerfile").write_text(STAGES)
    async with local_engine() as engine:
        image = await resolve_image(BuildContext(tmp_path / "context"), engine=engine)
        assert (image.workdir, image.user, image.env["WHO"]) == ("/w", "nobody", "me")
        assert await run(engine, image, "cat made; id -un") == "made\nnobody\n"
        log: list[str] = []
        assert await resolve_image(BuildContext(tmp_path / "context"), engine=engine, log=log.append) == image
        assert log == []


@pytest.mark.needs("local")
@pytest.mark.usefixtures("socket")
async def test_a_build_that_fails_elsewhere_shows_its_output(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"{STAGES}USER root\nRUN echo because; exit 3\n")
    async with local_engine() as engine:
        with pytest.raises(SandboxBuildError) as caught:
            await resolve_image(BuildContext(tmp_path), engine=engine)
    assert "because" in caught.value.output
    assert list((cache / "tmp").iterdir()) == []


@pytest.mark.needs("local", "buildah")
async def test_buildah_builds_what_is_not_simple(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        "FROM scratch AS a\nCOPY Dockerfile /x\nFROM scratch\nENV A=b\nCOPY --from=a /x /y\n"
    )
    async with local_engine() as engine:
        image = await resolve_image(BuildContext(tmp_path), engine=engine)
        assert image.env["A"] == "b"
        box = await engine.start_box(BoxSpec(name="look", layers=image.layers, network=Network("no-network")))
        try:
            assert b"FROM scratch" in await box.read("/y")
        finally:
            await box.stop()


@pytest.mark.needs("local", "docker")
async def test_a_simple_file_on_an_exported_base_is_built_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", SOCKETS["docker"])
    (tmp_path / "Dockerfile").write_text(f"FROM {BASE}\nRUN useradd -m me && echo hi > /home/me/x\nUSER me\n")
    async with local_engine() as engine:
        image = await resolve_image(BuildContext(tmp_path), engine=engine)
        assert image.notes == ()
        assert await run(engine, image, "cat ~/x; id -un") == "hi\nme\n"
