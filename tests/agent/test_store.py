"""Whole or absent, once, for everyone: with real files, tasks and processes."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from benchflow.agent.store import ensure

if TYPE_CHECKING:
    import os
    from pathlib import Path

CHILD = """
import asyncio, os, sys
from pathlib import Path
from benchflow.agent.store import ensure
store, log = Path(sys.argv[1]), Path(sys.argv[2])

async def build(folder):
    with log.open("a") as file:
        file.write(f"{os.getpid()}\\n")
    (folder / "half").write_text("x")
    print("building", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    (folder / "whole").write_text("x")

print(asyncio.run(ensure(store, "thing", build)), flush=True)
"""


def leftovers(store: Path) -> list[Path]:
    return [path for path in store.rglob("*") if not path.name.endswith(".lock") and path.name != ".building"]


def tree(folder: Path) -> dict[str, os.stat_result]:
    return {str(path): path.stat() for path in folder.rglob("*")}


async def start(store: Path, log: Path) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(store), str(log), stdin=pipe, stdout=pipe
    )


async def finish(process: asyncio.subprocess.Process) -> str:
    out, _ = await process.communicate(b"go\n")
    return out.decode().split()[-1]


async def test_many_tasks_build_once(tmp_path: Path) -> None:
    built = 0

    async def build(folder: Path) -> None:
        nonlocal built
        built += 1
        await asyncio.sleep(0.05)
        (folder / "file").write_text("x")

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ensure(tmp_path, "thing", build)) for _ in range(20)]
    assert {task.result() for task in tasks} == {tmp_path / "thing"}
    assert built == 1
    assert (tmp_path / "thing" / "file").read_text() == "x"


async def test_processes_build_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    processes = [await start(tmp_path / "store", log) for _ in range(3)]
    results = await asyncio.gather(*(finish(process) for process in processes))
    assert set(results) == {str(tmp_path / "store" / "thing")}
    assert len(log.read_text().split()) == 1


async def test_a_killed_builder_is_followed_by_the_next(tmp_path: Path) -> None:
    store, log = tmp_path / "store", tmp_path / "log"
    first = await start(store, log)
    assert first.stdout is not None
    assert await first.stdout.readline() == b"building\n"
    assert leftovers(store)
    second = await start(store, log)
    first.send_signal(signal.SIGKILL)
    await first.communicate()
    assert await finish(second) == str(store / "thing")
    assert sorted(path.name for path in leftovers(store)) == ["half", "thing", "whole"]


async def test_a_broken_build_leaves_nothing(tmp_path: Path) -> None:
    async def broken(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await ensure(tmp_path, "thing", broken)
    assert leftovers(tmp_path) == []


async def test_a_cancelled_build_leaves_nothing_and_frees_the_lock(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def endless(folder: Path) -> None:
        (folder / "half").write_text("x")
        begun.set()
        await asyncio.Event().wait()

    async def quick(folder: Path) -> None:
        (folder / "whole").write_text("x")

    task = asyncio.create_task(ensure(tmp_path, "thing", endless))
    await begun.wait()
    waiting = asyncio.create_task(ensure(tmp_path, "thing", quick))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await waiting == tmp_path / "thing"
    assert sorted(path.name for path in leftovers(tmp_path)) == ["thing", "whole"]


async def test_everyone_can_read_what_was_built(tmp_path: Path) -> None:
    async def build(folder: Path) -> None:
        (folder / "private").mkdir(mode=0o700)
        (folder / "private" / "secret").touch(mode=0o600)
        (folder / "private" / "run").touch(mode=0o700)
        (folder / "dangling").symlink_to("nowhere")

    thing = await ensure(tmp_path, "thing", build)
    modes = {path.name: oct(path.lstat().st_mode & 0o777) for path in (thing, *thing.rglob("*"))}
    assert modes == {"thing": "0o755", "private": "0o755", "secret": "0o644", "run": "0o755", "dangling": "0o777"}


async def test_a_finished_one_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thing").mkdir()
    before = tree(tmp_path)

    async def never(_folder: Path) -> None:
        raise AssertionError

    assert await ensure(tmp_path, "thing", never) == tmp_path / "thing"
    assert tree(tmp_path) == before
