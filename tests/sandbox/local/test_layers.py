from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from benchflow.sandbox.local.layers import LayerStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path


async def remove(path: Path) -> None:
    await asyncio.to_thread(shutil.rmtree, path)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LayerStore]:
    made = LayerStore(tmp_path, remove)
    yield made
    made.close()


class Maker:
    """Counts how often it is called; waits for `go` if it is given."""

    def __init__(self, *, fail: bool = False) -> None:
        self.calls = 0
        self.running = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.fail = fail

    async def __call__(self, folder: Path) -> Mapping[str, object]:
        self.calls += 1
        (folder / "file").write_text("content")
        self.running.set()
        await self.go.wait()
        if self.fail:
            raise RuntimeError("it failed")
        return {"text": "a test"}


def leftovers(root: Path) -> list[str]:
    return sorted(path.name for folder in ("tmp", "locks") for path in (root / folder).glob("*"))


async def test_a_layer_is_made_once_and_found_again(store: LayerStore, tmp_path: Path) -> None:
    make = Maker()
    assert store.find("k") is None
    layer = await store.ensure("k", make)
    assert (layer.path / "file").read_text() == "content"
    assert layer.about == {"text": "a test"}
    assert await store.ensure("k", make) == layer
    assert LayerStore(tmp_path, remove).find("k") == layer
    assert make.calls == 1
    assert leftovers(tmp_path) == []
    assert os.lstat(layer.path).st_mode & 0o777 == 0o755


async def test_many_who_want_it_wait_for_one(store: LayerStore) -> None:
    make = Maker()
    layers = await asyncio.gather(*(store.ensure("k", make) for _ in range(50)))
    assert len(set(map(id, layers))) == 1
    assert make.calls == 1


async def test_a_failure_leaves_nothing_and_the_next_one_tries(store: LayerStore, tmp_path: Path) -> None:
    bad, good = Maker(fail=True), Maker()
    bad.go.clear()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(_outcome(store.ensure("k", bad)))
        await bad.running.wait()
        second = group.create_task(_outcome(store.ensure("k", good)))
        await asyncio.sleep(0)
        bad.go.set()
    assert isinstance(first.result(), RuntimeError)
    assert not isinstance(second.result(), BaseException)
    assert leftovers(tmp_path) == []


async def test_a_cancelled_maker_leaves_nothing_and_hands_over(store: LayerStore, tmp_path: Path) -> None:
    slow, good = Maker(), Maker()
    slow.go.clear()
    first = asyncio.create_task(store.ensure("k", slow))
    await slow.running.wait()
    second = asyncio.create_task(store.ensure("k", good))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).path.is_dir()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (slow.calls, good.calls) == (1, 1)
    assert leftovers(tmp_path) == []


async def _outcome(work: object) -> object:
    try:
        return await work  # type: ignore[misc]
    except RuntimeError as error:
        return error


# -- between processes ---------------------------------------------------------------------------------------

OTHER = """
import asyncio, pathlib, shutil, sys
from benchflow.sandbox.local.layers import LayerStore

async def remove(path):
    shutil.rmtree(path)

async def make(folder):
    (folder / "file").write_text("other")
    print("making", flush=True)
    if sys.stdin.readline() == "fail\\n":
        raise SystemExit(1)
    return {}

async def main():
    store = LayerStore(pathlib.Path(sys.argv[1]), remove)
    layer = await store.ensure("k", make)
    print("made", flush=True)
    sys.stdin.readline()
    store.close() if len(sys.argv) > 2 else None

asyncio.run(main())
"""


async def start_other(root: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", OTHER, str(root), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


async def tell(process: asyncio.subprocess.Process, text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n".encode())
    await process.stdin.drain()


async def end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def test_another_process_is_waited_for(store: LayerStore, tmp_path: Path) -> None:
    other = await start_other(tmp_path)
    try:
        assert await line_of(other) == "making"
        waits = asyncio.Event()
        make = Maker()
        mine = asyncio.create_task(store.ensure("k", make, on_wait=waits.set))
        await waits.wait()
        await tell(other, "go")
        assert ((await mine).path / "file").read_text() == "other"
        assert make.calls == 0
    finally:
        await end(other)


async def test_a_killed_maker_is_taken_over_and_cleaned_up(store: LayerStore, tmp_path: Path) -> None:
    other = await start_other(tmp_path)
    try:
        assert await line_of(other) == "making"
        make = Maker()
        waits = asyncio.Event()
        mine = asyncio.create_task(store.ensure("k", make, on_wait=waits.set))
        await waits.wait()
        other.send_signal(signal.SIGKILL)
        assert ((await mine).path / "file").read_text() == "content"
        assert make.calls == 1
        assert leftovers(tmp_path) == []
    finally:
        await end(other)


async def test_a_cancelled_wait_for_another_process_does_not_keep_the_lock(store: LayerStore, tmp_path: Path) -> None:
    other = await start_other(tmp_path)
    try:
        assert await line_of(other) == "making"
        waits = asyncio.Event()
        mine = asyncio.create_task(store.ensure("k", Maker(), on_wait=waits.set))
        await waits.wait()
        mine.cancel()
        with pytest.raises(asyncio.CancelledError):
            await mine
        await tell(other, "fail")
        await other.wait()
        make = Maker()
        assert (await store.ensure("k", make)).path.is_dir()
        assert make.calls == 1
    finally:
        await end(other)


async def test_what_another_process_uses_is_not_pruned(store: LayerStore, tmp_path: Path) -> None:
    other = await start_other(tmp_path)
    try:
        await tell(other, "go")
        assert [await line_of(other), await line_of(other)] == ["making", "made"]
        assert await store.prune() == []
    finally:
        await end(other)
    assert await store.prune() == ["k"]
    assert store.find("k") is None
    assert leftovers(tmp_path) == []


# -- pruning -------------------------------------------------------------------------------------------------


async def test_pruning_takes_what_is_old_and_unused(tmp_path: Path) -> None:
    first = LayerStore(tmp_path, remove)
    for key in ("old", "new", "used"):
        await first.ensure(key, Maker())
    first.close()
    os.utime(tmp_path / "layers" / "old" / "layer.json", (1, 1))
    os.utime(tmp_path / "layers" / "used" / "layer.json", (1, 1))
    store = LayerStore(tmp_path, remove)
    assert store.find("used")
    assert await store.prune(older_than=3600, dry_run=True) == ["old a test"]
    assert (tmp_path / "layers" / "old").is_dir()
    assert await store.prune(older_than=3600) == ["old a test"]
    assert sorted(path.name for path in (tmp_path / "layers").iterdir()) == ["new", "used"]
    assert await store.prune() == ["new a test"]
    store.close()
    assert await store.prune() == ["used a test"]
    assert leftovers(tmp_path) == []
    assert await store.prune() == []


async def test_use_is_noted(store: LayerStore, tmp_path: Path) -> None:
    for key in ("a", "b"):
        await store.ensure(key, Maker())
        os.utime(tmp_path / "layers" / key / "layer.json", (1, 1))
    store.touch(["a", "b", "missing"])
    times = {(tmp_path / "layers" / key / "layer.json").stat().st_mtime_ns for key in ("a", "b")}
    assert len(times) == 1
    assert times.pop() > 10**18


async def test_disk_use_counts_layers(store: LayerStore) -> None:
    assert store.disk_use() == 0
    layer = await store.ensure("k", Maker())
    (layer.path / "big").write_bytes(os.urandom(100_000))
    assert store.disk_use() >= 100_000


async def test_a_layer_that_somebody_removed_is_made_again(store: LayerStore, tmp_path: Path) -> None:
    make = Maker()
    await store.ensure("k", make)
    shutil.rmtree(tmp_path / "layers")
    assert (await store.ensure("k", make)).path.is_dir()
    assert make.calls == 2


async def test_a_layer_whose_note_is_unreadable_counts_as_missing(store: LayerStore, tmp_path: Path) -> None:
    (tmp_path / "layers" / "k" / "fs").mkdir(parents=True)
    (tmp_path / "layers" / "k" / "layer.json").write_text(json.dumps([]))
    assert store.find("k") is None
    assert (await store.ensure("k", Maker())).about == {"text": "a test"}


async def test_nobody_else_may_reach_into_the_store(tmp_path: Path) -> None:
    store = LayerStore(tmp_path / "cache", remove)
    await store.ensure("k", Maker())
    store.close()
    assert os.lstat(tmp_path / "cache").st_mode & 0o777 == 0o700
