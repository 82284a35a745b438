"""Bundles, for real: small packages from npm and PyPI, built, moved and run."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from benchflow.agent.bundle import MOUNT_ROOT, Bundle, bundle_name, ensure_bundle
from benchflow.agent.catalog import get_agent
from benchflow.agent.platforms import Platform, host_platform
from benchflow.agent.spec import AgentSpec, Install, Launch
from benchflow.errors import AgentInstallError

if TYPE_CHECKING:
    from pathlib import Path

SEMVER = Install(npm=("semver@7.7.2",), node="24.19.0")
TABULATE = Install(pypi=("tabulate==0.9.0",), python=">=3.12")
BARE = {"PATH": "/usr/bin:/bin"}


@pytest.fixture(autouse=True)
def no_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a stand-alone Python can be fetched is the network's affair; the harder way is tested."""
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")


def agent(name: str, install: Install, *words: str) -> AgentSpec:
    return AgentSpec(name=name, install=install, launch=Launch(command=words or (name,)))


def on_host(bundle: Bundle, root: Path) -> list[str]:
    """The command as it is on this machine, with the bundles elsewhere than where they were built."""
    return [word.replace(MOUNT_ROOT, str(root)) for word in bundle.argv]


def moved(bundle: Bundle, target: Path) -> Path:
    for mount in bundle.mounts:
        shutil.copytree(mount.source, target / mount.source.name, symlinks=True)
    return target


def names_in(root: Path) -> list[str]:
    return [path.name for path in (*root.glob("*"), *root.glob(".building/*")) if path.suffix != ".lock"]


def run(argv: list[str], text: str = "", **env: str) -> str:
    done = subprocess.run(argv, input=text, capture_output=True, text=True, env={**BARE, **env}, cwd="/", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_an_npm_agent_runs_with_its_own_node(bundles: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    bundle = await ensure_bundle(agent("semver", SEMVER, "semver", "-r", ">=1"), root=bundles, log=lines.append)
    assert lines[0].startswith("getting Node 24.19.0")
    assert bundle.argv[0] == f"{MOUNT_ROOT}/{bundle.mounts[0].source.name}/bin/semver"
    assert bundle.argv[1:] == ("-r", ">=1")
    assert [mount.target for mount in bundle.mounts] == [f"{MOUNT_ROOT}/{m.source.name}" for m in bundle.mounts]
    assert not any(mount.writable for mount in bundle.mounts)
    argv = on_host(bundle, moved(bundle, tmp_path))
    assert run([*argv, "1.2.3"]) == "1.2.3\n"


async def test_a_python_agent_runs_with_its_own_interpreter(bundles: Path, tmp_path: Path) -> None:
    bundle = await ensure_bundle(agent("tabulate", TABULATE), root=bundles)
    prefix = moved(bundle, tmp_path) / bundle.mounts[0].source.name
    assert "a" in run(on_host(bundle, tmp_path), "a b\n", PYTHONPATH="/nonsense", PYTHONHOME="/nonsense")
    where = "import sys, ssl, sqlite3, ctypes, tabulate; print(sys.prefix, tabulate.__file__)"
    for path in run([str(prefix / "python" / "bin" / "python3"), "-c", where]).split():
        assert path.startswith(str(prefix))


async def test_everything_in_a_bundle_is_readable_for_everyone(bundles: Path) -> None:
    for spec in (agent("semver", SEMVER), agent("tabulate", TABULATE)):
        for mount in (await ensure_bundle(spec, root=bundles)).mounts:
            for path in (mount.source, *mount.source.rglob("*")):
                assert path.is_symlink() or path.stat().st_mode & 0o004, path
                assert path.is_symlink() or not path.is_dir() or path.stat().st_mode & 0o001, path
                assert path.exists(), path


async def test_a_bundle_that_exists_is_used_as_it_is(bundles: Path) -> None:
    spec = agent("semver", SEMVER)
    first = await ensure_bundle(spec, root=bundles)
    lines: list[str] = []
    async with asyncio.TaskGroup() as group:
        again = [group.create_task(ensure_bundle(spec, root=bundles, log=lines.append)) for _ in range(50)]
    assert all(task.result() == first for task in again)
    assert lines == []


async def test_a_bundle_for_another_c_library(bundles: Path) -> None:
    """Packages with a build per platform: the one for the sandbox is taken, not the one for this machine."""
    install = Install(npm=("lightningcss@1.29.1",), bins={"css": "package.json"})
    names = {}
    for platform in (Platform("glibc", "x64"), Platform("musl", "x64"), Platform("glibc", "arm64")):
        bundle = await ensure_bundle(agent("css", install), root=bundles, platform=platform)
        names[str(platform)] = {path.name for path in (bundle.mounts[0].source / "node_modules").iterdir()}
    assert "lightningcss-linux-x64-gnu" in names["glibc-x64"]
    assert "lightningcss-linux-x64-musl" in names["musl-x64"]
    assert "lightningcss-linux-x64-gnu" not in names["musl-x64"]
    assert "lightningcss-linux-arm64-gnu" in names["glibc-arm64"]


async def test_only_the_scripts_that_are_asked_for_run(bundles: Path) -> None:
    """esbuild's install script puts the binary for this machine where a Node script was."""
    plain = Install(npm=("esbuild@0.25.5",), node="24.19.0")
    starts = {}
    for install in (plain, plain.model_copy(update={"scripts": ("esbuild",)})):
        bundle = await ensure_bundle(agent("esbuild", install), root=bundles)
        program = bundle.mounts[0].source / "node_modules" / "esbuild" / "bin" / "esbuild"
        starts[install.scripts] = program.read_bytes()[:4]
        assert run([*on_host(bundle, bundles), "--version"]) == "0.25.5\n"
    assert starts == {(): b"#!/u", ("esbuild",): b"\x7fELF"}


async def test_a_python_agent_is_refused_for_another_machine(bundles: Path) -> None:
    other = Platform("musl" if host_platform().libc == "glibc" else "glibc", host_platform().arch)
    with pytest.raises(AgentInstallError, match=r"tabulate 0\.9\.0: a Python agent is built on a machine of its kind"):
        await ensure_bundle(agent("tabulate", TABULATE), root=bundles, platform=other)


@pytest.mark.parametrize(
    ("install", "words"),
    [
        (Install(npm=("semver@0.0.0-none",), node="24.19.0"), "No matching version found for semver"),
        (Install(pypi=("tabulate==0.0.0.1",), python=">=3.12"), "there is no version of tabulate"),
        (Install(pypi=("tabulate==0.9.0",), python="<3"), "needs Python <3"),
        (Install(npm=("semver@7.7.2",), bins={"x": "no/such"}), "no no/such, so there is no command 'x'"),
        (Install(npm=("semver@7.7.2",), scripts=("other",)), "install.scripts names other, which is not among"),
    ],
)
async def test_a_broken_build_says_why_and_leaves_nothing(bundles: Path, install: Install, words: str) -> None:
    with pytest.raises(AgentInstallError) as caught:
        await ensure_bundle(agent("broken", install), root=bundles)
    assert words in str(caught.value)
    assert str(caught.value).startswith("broken ")
    assert not [name for name in names_in(bundles) if name.startswith("broken")]


async def test_a_build_has_a_time_limit(tmp_path: Path) -> None:
    with pytest.raises(AgentInstallError, match=r"semver 7\.7\.2 was not installed within 0\.05 s"):
        await ensure_bundle(agent("semver", SEMVER), root=tmp_path, timeout=0.05)
    assert names_in(tmp_path) == [".building"]


def test_the_name_tells_content_and_platform() -> None:
    platform = Platform("glibc", "x64")
    name = bundle_name(agent("semver", SEMVER), platform)
    assert name.startswith("semver-7.7.2-glibc-x64-")
    assert name == bundle_name(agent("semver", SEMVER, "semver", "--other"), platform)
    assert name != bundle_name(agent("semver", SEMVER.model_copy(update={"node": "24.17.0"})), platform)
    assert bundle_name(agent("semver", SEMVER), Platform("musl", "arm64")).startswith("semver-7.7.2-musl-arm64-")


async def test_a_command_of_the_image_needs_no_bundle(tmp_path: Path) -> None:
    assert await ensure_bundle(get_agent("my-agent --acp")) == Bundle(argv=("my-agent", "--acp"))
    assert (await ensure_bundle(get_agent("/usr/bin/env x"))).mounts == ()


async def test_a_program_of_the_users_own_goes_along(tmp_path: Path) -> None:
    program = tmp_path / "agent.py"
    program.write_text("#!/usr/bin/env python3\n")
    program.chmod(0o755)
    bundle = await ensure_bundle(get_agent(f"{program} --acp"))
    (mount,) = bundle.mounts
    assert (mount.source, mount.writable) == (program, False)
    assert bundle.argv == (mount.target, "--acp")
    assert mount.target.endswith("/agent.py")


def test_our_files_are_shipped() -> None:
    spec = get_agent("acpx/claude").through
    assert spec is not None
    assert json.dumps(spec.install.files) == '["acpx_bridge.mjs"]'
    assert bundle_name(spec, host_platform()).startswith("acpx-0.19.1-")
