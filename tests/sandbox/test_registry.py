from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import ConfigError, SandboxUnavailable
from benchflow.sandbox import registry
from benchflow.sandbox.registry import backend_names, choose_backend, close_backends, get_backend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PLUGIN = """
from benchflow.errors import SandboxUnavailable
from benchflow.sandbox.base import Capabilities

class Plugin:
    name = "plugin"
    closed = False
    async def check(self):
        return Capabilities(fork=True)
    async def close(self):
        self.closed = True

class Absent(Plugin):
    name = "absent"
    async def check(self):
        raise SandboxUnavailable("no engine", backend="absent", phase="check", hint="start the engine")

class Silent(Plugin):
    name = "silent"
    async def check(self):
        import asyncio
        await asyncio.Event().wait()
"""


@pytest.fixture(autouse=True)
async def _fresh() -> AsyncIterator[None]:
    await close_backends()
    yield
    await close_backends()


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package on the path that registers backends, as an installed one would."""
    info = tmp_path / "bf_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bf-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[benchflow.sandboxes]\nplugin = bf_plugin:Plugin\nabsent = bf_plugin:Absent\nsilent = bf_plugin:Silent\n"
        "broken = bf_plugin:Missing\ndocker = bf_plugin:Plugin\n"
    )
    (tmp_path / "bf_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "bf_plugin", raising=False)


def test_builtin_names_come_first() -> None:
    assert backend_names()[:2] == ("docker", "local")


@pytest.mark.usefixtures("plugins")
def test_an_entry_point_is_a_backend() -> None:
    assert {"plugin", "absent"} <= set(backend_names())
    assert get_backend("plugin").name == "plugin"
    assert get_backend("plugin") is get_backend("plugin")


@pytest.mark.usefixtures("plugins")
def test_an_entry_point_cannot_take_a_builtin_name() -> None:
    assert backend_names().count("docker") == 1
    assert type(get_backend("docker")).__module__.startswith("benchflow.")


@pytest.mark.usefixtures("plugins")
def test_a_broken_entry_point_names_its_package() -> None:
    with pytest.raises(ConfigError, match="'broken' of bf-plugin"):
        get_backend("broken")


@pytest.mark.parametrize("name", ["docker", "local"])
def test_builtin_backends_are_cheap_to_make(name: str) -> None:
    assert get_backend(name).name == name


def test_another_name_is_the_same_backend() -> None:
    assert get_backend("embedded") is get_backend("local")


@pytest.mark.parametrize(("name", "near"), [("dokcer", "docker"), ("locl", "local"), ("atuo", "auto")])
def test_an_unknown_name_gets_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean '{near}'"):
        get_backend(name)


def test_a_strange_name_gets_all() -> None:
    with pytest.raises(ConfigError, match="docker, local, auto"):
        get_backend("xyzzy")


@pytest.mark.parametrize("name", ["daytona", "modal", "kubernetes"])
def test_a_backend_that_others_have(name: str) -> None:
    with pytest.raises(ConfigError, match=f"this release has no sandbox backend '{name}'; it has docker, local"):
        get_backend(name)


def test_podman_is_reached_through_docker() -> None:
    with pytest.raises(ConfigError, match="DOCKER_HOST"):
        get_backend("podman")


@pytest.mark.usefixtures("plugins")
async def test_a_chosen_backend_must_work() -> None:
    backend, reason = await choose_backend("plugin")
    assert (backend.name, reason) == ("plugin", "sandbox: plugin")
    with pytest.raises(SandboxUnavailable, match="start the engine"):
        await choose_backend("absent")


@pytest.mark.usefixtures("plugins")
async def test_auto_takes_the_first_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "AUTO_ORDER", ("plugin", "absent"))
    backend, reason = await choose_backend()
    assert (backend.name, reason) == ("plugin", "sandbox: plugin (chosen by auto)")


@pytest.mark.usefixtures("plugins")
async def test_auto_says_why_not_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "AUTO_ORDER", ("silent", "absent", "plugin"))
    monkeypatch.setattr(registry, "CHECK_TIMEOUT", 0.05)
    backend, reason = await choose_backend("auto")
    assert backend.name == "plugin"
    assert "silent check: no answer within 0.05 s" in reason
    assert "absent check: no engine" in reason


@pytest.mark.usefixtures("plugins")
async def test_auto_without_any_lists_all_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "AUTO_ORDER", ("silent", "absent"))
    monkeypatch.setattr(registry, "CHECK_TIMEOUT", 0.05)
    with pytest.raises(SandboxUnavailable, match=r"(?s)no answer within.*no engine.*start the engine.*bench doctor"):
        await choose_backend()


@pytest.mark.usefixtures("plugins")
async def test_closing_makes_them_anew() -> None:
    first = get_backend("plugin")
    await close_backends()
    assert vars(first) == {"closed": True}
    assert get_backend("plugin") is not first


def test_the_registry_loads_no_backend() -> None:
    code = "import sys, benchflow.sandbox.registry; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = ("aiodocker", "aiohttp", "benchflow.sandbox.docker", "benchflow.sandbox.local")
    assert [name for name in done.stdout.split() if name.startswith(heavy)] == []


@pytest.mark.needs("docker")
async def test_auto_is_docker_where_an_engine_answers() -> None:
    backend, reason = await choose_backend()
    assert (backend.name, reason) == ("docker", "sandbox: docker (chosen by auto)")


@pytest.mark.needs("local")
async def test_auto_is_local_where_no_engine_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    backend, reason = await choose_backend()
    assert backend.name == "local"
    assert f"{tmp_path}/no.sock" in reason
