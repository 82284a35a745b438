"""What an agent left is kept and put back, from one sandbox to another of the same image."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import SandboxError
from benchflow.rollout import keep
from benchflow.rollout.keep import NotKept, is_kept, keep_state, restore_state
from benchflow.sandbox.base import FileData, HostRoot, ImageRef, Network, SandboxSpec
from benchflow.sandbox.docker.backend import DockerBackend
from benchflow.sandbox.local.backend import LocalBackend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from benchflow.sandbox.base import Backend, Sandbox

WORK = r"""
set -e
mkdir -p /app/deep/er /opt/tool /home/agent/.agent
echo work > /app/deep/er/file
printf 'odd' > "$(printf '/app/a b\nc\377')"
ln -s deep/er/file /app/link
chmod 741 /app/deep/er/file
chown 1234:4321 /app/deep
echo tool > /opt/tool/it
rm -r /etc/skel
rm -r /etc/apt && echo 'a file now' > /etc/apt
rm /etc/issue && mkdir /etc/issue && echo 'a folder now' > /etc/issue/in
echo s3cr3t-login > /home/agent/.agent/login
"""
LOOK = r"""
cat /app/link; stat -c '%a' /app/deep/er/file; stat -c '%u:%g' /app/deep; cat "$(printf '/app/a b\nc\377')"; echo
cat /opt/tool/it /etc/apt /etc/issue/in; ls -d /etc/skel /home/agent/.agent/login
"""
SEEN = "work\n741\n1234:4321\nodd\ntool\na file now\na folder now\n"


@pytest.fixture(
    params=[
        pytest.param("local", marks=pytest.mark.needs("local")),
        pytest.param("docker", marks=pytest.mark.needs("docker")),
    ]
)
async def spec_and_backend(request: pytest.FixtureRequest) -> AsyncIterator[tuple[SandboxSpec, Backend]]:
    backend = LocalBackend() if request.param == "local" else DockerBackend()
    image = HostRoot() if request.param == "local" else ImageRef("debian:bookworm-slim")
    yield SandboxSpec(image, workdir="/app", network=Network("no-network")), backend
    await backend.close()


@pytest.fixture
async def box(spec_and_backend: tuple[SandboxSpec, Backend]) -> AsyncIterator[Sandbox]:
    spec, backend = spec_and_backend
    async with backend.create(spec) as sandbox:
        made = await sandbox.exec(WORK, user=0)
        assert made.ok, made
        yield sandbox


async def test_everything_comes_back_but_the_agents_own_folder(
    spec_and_backend: tuple[SandboxSpec, Backend], box: Sandbox, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    await keep_state(box, kept, leave_out=["/home/agent/.agent"], secrets=["s3cr3t-login"])
    assert is_kept(kept)
    assert json.loads((kept / "kept.json").read_text())["kind"] == "changes"
    spec, backend = spec_and_backend
    async with backend.create(spec) as other:
        await restore_state(other, kept)
        looked = await other.exec(LOOK, user=0)
    assert looked.text == SEEN
    assert looked.stderr.count(b"No such file") == 2


async def test_a_secret_is_never_kept(box: Sandbox, tmp_path: Path) -> None:
    for secret in ("s3cr3t-login", "s3cr3t"):
        with pytest.raises(NotKept, match="credential"):
            await keep_state(box, tmp_path / "kept", secrets=["", secret])
    assert not (tmp_path / "kept").exists()


TAR = """#!/bin/sh
case "$1" in --version) echo GNU; exit;; esac
head -c 50000000 /dev/zero >&2
echo last words >&2
exit 2
"""


async def test_a_tar_of_the_agents_own_cannot_fill_our_memory(box: Sandbox, tmp_path: Path) -> None:
    await box.put({"tar": FileData(TAR.encode(), 0o755)}, (await box.exec("dirname $(command -v tar)")).text.strip())
    tracemalloc.start()
    try:
        with pytest.raises(SandboxError, match="last words") as caught:
            await keep_state(box, tmp_path / "kept")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 25_000_000
    assert len(caught.value.message) < 1000


@pytest.mark.needs("local")
class TestTheWorkspaceAlone:
    """What is kept where a sandbox cannot tell what was changed."""

    @pytest.fixture
    async def blind(self) -> AsyncIterator[LocalBackend]:
        backend = LocalBackend()
        yield backend
        await backend.close()

    async def test_it_is_replaced(self, blind: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(keep, "_HAS_TAR", "false")
        spec = SandboxSpec(HostRoot(), workdir="/app", network=Network("no-network"))
        async with blind.create(spec) as box:
            await box.exec("echo work > /app/file; echo hidden > /app/.h", user=0)
            with pytest.raises(NotKept, match="credential"):
                await keep_state(box, tmp_path / "kept", secrets=["hidden"])
            await keep_state(box, tmp_path / "kept")
        assert json.loads((tmp_path / "kept" / "kept.json").read_text())["kind"] == "workspace"
        async with blind.create(spec) as box:
            await box.exec("echo old > /app/old; echo old > /app/.old", user=0)
            await restore_state(box, tmp_path / "kept")
            assert (await box.exec("ls -A /app; cat /app/file /app/.h")).text == ".h\nfile\nwork\nhidden\n"
        async with blind.create(replace(spec, workdir="/")) as box:
            with pytest.raises(NotKept, match="working folder"):
                await keep_state(box, tmp_path / "none")
            with pytest.raises(NotKept, match="does not hold"):
                await restore_state(box, tmp_path / "none")

    async def test_too_much_is_not_kept(
        self, blind: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(keep, "LIMIT", 100_000)
        spec = SandboxSpec(HostRoot(), workdir="/app", network=Network("no-network"))
        async with blind.create(spec) as box:
            await box.exec("head -c 200000 /dev/zero > /app/file", user=0)
            with pytest.raises(NotKept, match="more than"):
                await keep_state(box, tmp_path / "kept")
        assert not (tmp_path / "kept").exists()
