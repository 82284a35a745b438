"""Bundles for another kind of machine, built for real inside a sandbox and run in another one.

There is no image of another kind here, so the bundle is asked for under the other kind's name: everything but the name
is as it would be, and what was built runs where it was built.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from benchflow.agent.bundle import bundle_name, ensure_bundle
from benchflow.agent.platforms import Platform, host_platform
from benchflow.agent.spec import AgentSpec, Install, Launch
from benchflow.errors import AgentInstallError
from benchflow.sandbox.base import BuildContext, ImageRef, Network, SandboxSpec
from benchflow.sandbox.registry import backends_in_use, get_backend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from benchflow.sandbox.base import Backend, Sandbox

DOCKERFILE = """\
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*
"""
OTHER = Platform("musl" if host_platform().libc == "glibc" else "glibc", host_platform().arch)

pytestmark = pytest.mark.needs("local")


def agent(python: str = ">=3.11") -> AgentSpec:
    install = Install(pypi=("tabulate==0.9.0",), python=python)
    return AgentSpec(name="tabulate", install=install, launch=Launch(command=("tabulate", "-f", "plain")))


@pytest_asyncio.fixture
async def local() -> AsyncIterator[Backend]:
    async with backends_in_use():
        yield get_backend("local")


@pytest.fixture
def workshop(local: Backend, tmp_path: Path) -> Callable[[str], Sandbox]:
    """A sandbox whose image has a Python of its own."""
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(DOCKERFILE)

    def make(mode: str = "public") -> Sandbox:
        network = Network() if mode == "public" else Network("no-network")
        env = {} if mode == "public" else {"UV_HTTP_RETRIES": "0"}
        return local.create(SandboxSpec(BuildContext(context), name="workshop", network=network, env=env))

    return make


async def test_built_inside_once_and_run_in_another_sandbox(
    local: Backend, workshop: Callable[[], Sandbox], tmp_path: Path
) -> None:
    made: list[Sandbox] = []

    def counted() -> Sandbox:
        made.append(workshop())
        return made[-1]

    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(ensure_bundle(agent(), platform=OTHER, workshop=counted, root=tmp_path)) for _ in range(3)
        ]
    bundle = asked[0].result()
    assert all(task.result() == bundle for task in asked)
    assert len(made) == 1
    assert made[0].id not in [info.id for info in await local.list()]
    assert bundle.mounts[0].source == tmp_path / bundle_name(agent(), OTHER)
    spec = SandboxSpec(
        ImageRef("debian:bookworm-slim"), name="user", network=Network("no-network"), mounts=bundle.mounts
    )
    async with local.create(spec) as sandbox:
        done = await sandbox.exec(bundle.argv, user="nobody", stdin=b"a  b\n", env={"PYTHONHOME": "/nonsense"})
        assert done.text.split() == ["a", "b"], done.stderr
        where = "import sys, ssl, sqlite3, ctypes, tabulate; print(sys.prefix, tabulate.__file__)"
        python = f"{bundle.mounts[0].target}/python/bin/python3"
        paths = (await sandbox.exec([python, "-c", where], user="nobody")).text.split()
        assert len(paths) == 2
        assert all(path.startswith(bundle.mounts[0].target) for path in paths)


@pytest.mark.parametrize(
    ("python", "words"),
    [
        (">=3.12", f"needs Python >=3.12: this {OTHER} image has none, and none could be fetched; a download failed"),
        (">=3.11", f"could not be built inside a {OTHER} sandbox; a download failed inside it"),
    ],
)
async def test_what_the_sandbox_lacks_is_said(
    workshop: Callable[[str], Sandbox], python: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(AgentInstallError) as caught:
        await ensure_bundle(agent(python), platform=OTHER, workshop=lambda: workshop("no-network"), root=tmp_path)
    assert words in str(caught.value)
    assert str(caught.value).startswith("tabulate 0.9.0: ")
    assert not await asyncio.to_thread(lambda: list(tmp_path.glob("tabulate*")))
