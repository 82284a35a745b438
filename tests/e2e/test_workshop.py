"""A Python agent in a sandbox that is of another kind than the host: it is built inside one, once, and runs there.

There is no image of another kind here, so it is the host that says it is: its C library is taken for musl, while the
sandbox is what it is, and what is built inside it must run in it.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import benchflow as bf
from benchflow.agent.platforms import host_platform
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.scene import Scene
from benchflow.sandbox.registry import backends_in_use, get_backend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import MakeTask

# The agent is one of the tiny ones, run by a command from PyPI, so by the interpreter of the bundle.
AGENT = """
name = "from-pypi"

[install]
pypi = ["coverage==7.6.1"]
python = ">=3.11"

[launch]
command = ["coverage", "run", "--data-file=/tmp/coverage", "/opt/agents.py", "echo"]
"""
TEST = "#!/bin/sh\n[ -s /tmp/coverage ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n"


@pytest.fixture
def other_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """This machine under another name, with bundles of its own."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchflow"
    own = tmp_path / "cache" / "benchflow"
    own.mkdir(parents=True)
    for name in ("local", "uv"):
        (cache / name).mkdir(parents=True, exist_ok=True)
        (own / name).symlink_to(cache / name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(own.parent))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    host_platform.cache_clear()
    yield own / "agents"
    host_platform.cache_clear()


@pytest.mark.needs("local")
async def test_an_agent_is_built_inside_a_sandbox_of_its_kind(
    make_task: MakeTask, tmp_path: Path, other_host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the verifier looks for is written when the agent ends, however long that takes.
    monkeypatch.setattr("benchflow.acp.link.EXIT_GRACE", 60.0)
    agent = tmp_path / "agent.toml"
    agent.write_text(AGENT)
    config = RolloutConfig(
        task_path=make_task(files={"tests/test.sh": TEST}),
        scenes=[Scene.single(str(agent))],
        environment="local",
        jobs_dir=tmp_path / "jobs",
    )
    first = await bf.run(config)
    assert first.error is None, first.error
    assert first.passed
    log = (first.rollout_dir / "agent" / "install-stdout.txt").read_text()
    assert "building inside a sandbox of the kind glibc" in log
    assert kinds_in(other_host) == ["glibc", "musl"]
    again = await bf.run(config)
    assert again.passed
    assert not (again.rollout_dir / "agent" / "install-stdout.txt").exists()
    async with backends_in_use():
        ours = {first.rollout_dir.name, again.rollout_dir.name}
        assert not [info for info in await get_backend("local").list() if info.rollout in ours]


def kinds_in(folder: Path) -> list[str]:
    return sorted(path.name.split("-")[3] for path in folder.glob("from-pypi-*"))
