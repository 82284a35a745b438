"""What the tests of the local engine share: a root file system, and an engine that must leave nothing."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from benchflow.sandbox.base import Limits, Network
from benchflow.sandbox.local.engine import BoxSpec, Engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchflow" / "test"


@pytest.fixture(scope="session")
def rootfs() -> Path:
    """A small Debian, unpacked once and kept."""
    archive, folder = CACHE / "bookworm.tar", CACHE / "bookworm"
    with (CACHE / "bookworm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(mode=0o755)
            subprocess.run(["tar", "-xpf", archive, "-C", partial, "--exclude=./dev/*"], check=True)
            partial.rename(folder)
    return folder


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine with a folder of its own, in which nothing may be left, nor in the control groups."""
    engine = Engine(root=tmp_path / "state")
    yield engine
    await engine.close()
    assert_nothing_left(engine, tmp_path / "state")


def assert_nothing_left(engine: Engine, state: Path) -> None:
    assert [path for path in state.rglob("*") if path.name not in {"boxes", "uppers"}] == []
    assert [path for path in engine.means.cgroups.groups() if f"-{os.getpid()}-" in path.name] == []


@pytest.fixture
def spec(rootfs: Path) -> Callable[..., BoxSpec]:
    """A box of the small Debian, without network and limits unless told otherwise."""

    def make(*, limits: Limits | None = None, network: str = "no-network", **options: object) -> BoxSpec:
        chosen = {"layers": (rootfs,), **options}
        return BoxSpec(
            "test",
            network=Network(network),  # type: ignore[arg-type] # a mode
            limits=limits or Limits(),
            **chosen,  # type: ignore[arg-type] # fields of the spec
        )

    return make
