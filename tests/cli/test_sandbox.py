from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from benchflow.cli.cleanup import app as cleanup_app
from benchflow.cli.cleanup import parse_age
from benchflow.cli.sandbox import app as sandbox_app
from benchflow.cli.sandbox import human_age
from benchflow.sandbox import registry
from benchflow.sandbox.base import HostRoot, Network, Owner, SandboxSpec
from benchflow.sandbox.local.backend import LocalBackend

if TYPE_CHECKING:
    from pathlib import Path

SHELF = '''
import json, os, time
from dataclasses import asdict
from pathlib import Path
from benchflow.errors import SandboxUnavailable
from benchflow.sandbox.base import Capabilities, SandboxInfo

STATE = Path(os.environ["SHELF"])

class Shelf:
    """Sandboxes that are lines of a file: enough for the commands, which only list and remove."""
    name = "shelf"
    async def check(self):
        return Capabilities()
    async def list(self):
        return [SandboxInfo(**item) for item in json.loads(STATE.read_text())]
    async def reap(self, *, everything=False, older_than=0.0, dry_run=False):
        found = await self.list()
        gone = [i for i in found if (everything or not i.owner_alive) and time.time() - i.created >= older_than]
        if not dry_run:
            STATE.write_text(json.dumps([asdict(i) for i in found if i not in gone]))
        return gone
    async def disk_use(self):
        return {"images": 1_500_000_000, "layers": 12}
    async def prune(self, *, older_than=0.0, dry_run=False):
        return ["image old:latest"] if older_than <= 3600 else []
    async def close(self):
        pass

class Absent(Shelf):
    name = "absent"
    async def check(self):
        raise SandboxUnavailable("no engine", backend="absent", phase="check")
'''


def item(name: str, *, alive: bool, age: float) -> dict[str, object]:
    return {
        "backend": "shelf",
        "id": name,
        "job": "2025-11-15",
        "rollout": "hello[1]__ab",
        "owner_pid": os.getpid(),
        "owner_alive": alive,
        "created": time.time() - age,
        "state": "running",
    }


@pytest.fixture(autouse=True)
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / "state.json"
    state.write_text(
        json.dumps(
            [item("live", alive=True, age=90), item("dead", alive=False, age=7300), item("new", alive=False, age=5)]
        )
    )
    (tmp_path / "bf_shelf.py").write_text(SHELF)
    info = tmp_path / "bf_shelf-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bf-shelf\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[benchflow.sandboxes]\nshelf = bf_shelf:Shelf\nabsent = bf_shelf:Absent\n")
    monkeypatch.setenv("SHELF", str(state))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "bf_shelf", raising=False)
    monkeypatch.setattr(registry, "BUILTIN", {})
    return state


def left(shelf: Path) -> list[str]:
    return [each["id"] for each in json.loads(shelf.read_text())]


def run(*args: str, app: typer.Typer = cleanup_app) -> str:
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_shows_whose_each_is() -> None:
    lines = run("list", app=sandbox_app).splitlines()
    assert lines[0].split() == ["id", "backend", "job", "rollout", "owner", "age", "state"]
    assert [line.split()[0] for line in lines[1:]] == ["dead", "live", "new"]
    assert "(dead)" in lines[1]
    assert "2h 1m" in lines[1]
    assert "hello[1]__ab" in lines[1]
    assert "(dead)" not in lines[2]


def test_list_passes_over_what_does_not_work() -> None:
    result = CliRunner().invoke(sandbox_app, ["list"])
    assert "skipped absent check: no engine" in result.stderr
    assert "absent" not in result.stdout


def test_list_as_json() -> None:
    document = json.loads(run("list", "--json", app=sandbox_app))
    assert [each["id"] for each in document["sandboxes"]] == ["dead", "live", "new"]
    assert document["skipped"] == {"absent": "absent check: no engine"}


def test_list_of_nothing(shelf: Path) -> None:
    shelf.write_text("[]")
    assert run("list", app=sandbox_app) == "no sandboxes\n"


@pytest.mark.needs("local")
async def test_list_and_cleanup_of_a_real_one() -> None:
    backend = LocalBackend()
    spec = SandboxSpec(HostRoot(), network=Network("no-network"), owner=Owner("a-job", "a-rollout"))
    try:
        async with backend.create(spec) as sandbox:
            listed = json.loads(await bench("sandbox", "list", "--json"))["sandboxes"]
            mine = next(each for each in listed if each["id"] == sandbox.id)
            assert (mine["backend"], mine["job"], mine["rollout"]) == ("local", "a-job", "a-rollout")
            assert (mine["owner_pid"], mine["owner_alive"]) == (os.getpid(), True)
            assert sandbox.id not in await bench("cleanup", "--dry-run")
            assert (await sandbox.exec(["true"])).ok
        assert sandbox.id not in await bench("sandbox", "list")
    finally:
        await backend.close()


async def bench(*args: str) -> str:
    """The command as a user runs it, in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchflow.cli.app", *args, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


def test_cleanup_removes_only_what_has_no_owner(shelf: Path) -> None:
    text = run()
    assert "removed sandbox dead (shelf, running) of 2025-11-15/hello[1]__ab" in text
    assert "removed sandbox new" in text
    assert "images 1.5 GB" in text
    assert left(shelf) == ["live"]
    assert "nothing to remove" in run()


def test_cleanup_dry_run_removes_nothing(shelf: Path) -> None:
    assert "would remove sandbox dead" in run("--dry-run")
    assert left(shelf) == ["live", "dead", "new"]


def test_cleanup_older_than(shelf: Path) -> None:
    assert "new" not in run("--older-than", "2h")
    assert left(shelf) == ["live", "new"]


def test_cleanup_all(shelf: Path) -> None:
    run("--all")
    assert left(shelf) == []


def test_cleanup_images() -> None:
    assert "old:latest" not in run()
    assert "removed image old:latest (shelf)" in run("--images")
    assert "old:latest" not in run("--images", "--older-than", "7d")


def test_cleanup_as_json_and_under_sandbox(shelf: Path) -> None:
    document = json.loads(run("cleanup", "--json", "--dry-run", app=sandbox_app))
    assert document["dry_run"] is True
    done = {each["backend"]: each for each in document["backends"]}
    assert [info["id"] for info in done["shelf"]["sandboxes"]] == ["dead", "new"]
    assert done["shelf"]["disk_use"] == {"images": 1_500_000_000, "layers": 12}
    assert done["absent"]["skipped"]
    assert left(shelf) == ["live", "dead", "new"]


def test_cleanup_with_a_wrong_age_is_wrong_usage() -> None:
    result = CliRunner().invoke(cleanup_app, ["--older-than", "soon"])
    assert result.exit_code == 2
    assert "30m, 2h or 7d" in result.stderr


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90", 90), ("45s", 45), ("30m", 1800), ("1.5h", 5400), ("7d", 604800), ("1w", 604800)],
)
def test_ages(text: str, seconds: float) -> None:
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-1h", "1y", "1 2h", "2h30m"])
def test_wrong_ages(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_age(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m 0s"), (3725, "1h 2m"), (90000, "1d 1h")]
)
def test_human_age(seconds: float, text: str) -> None:
    assert human_age(seconds) == text
