"""Locks between processes: one at a time, whoever waits goes on when the holder is done or dead, or gives up."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from benchflow.locks import briefly, hold, is_locked, locked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

HOLDER = """
import asyncio, sys
from pathlib import Path
from benchflow.locks import locked

async def main():
    async with locked(Path(sys.argv[1])):
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@asynccontextmanager
async def another_process(path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that holds the lock until its input ends."""
    pipe = asyncio.subprocess.PIPE
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLDER, str(path), stdin=pipe, stdout=pipe)
    try:
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"held\n"
        yield holder
    finally:
        await holder.communicate()


async def take(path: Path, waited: asyncio.Event) -> None:
    async with locked(path, on_wait=waited.set):
        assert is_locked(path)


async def test_one_task_at_a_time_in_the_order_they_came(tmp_path: Path) -> None:
    path, inside, order = tmp_path / "deep" / "lock", 0, []

    async def one(number: int) -> None:
        nonlocal inside
        async with locked(path):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1
            order.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(one(number))
    assert order == list(range(20))
    assert not path.exists()


async def test_tasks_of_this_process_need_no_thread_to_wait(tmp_path: Path) -> None:
    waited, threads = asyncio.Event(), set(threading.enumerate())
    async with locked(tmp_path / "lock"):
        waiting = [asyncio.create_task(take(tmp_path / "lock", waited)) for _ in range(5)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        assert "benchflow-lock" not in {thread.name for thread in set(threading.enumerate()) - threads}
    await asyncio.gather(*waiting)
    assert not waited.is_set()


async def test_waiting_can_be_cancelled(tmp_path: Path) -> None:
    waited = asyncio.Event()
    async with locked(tmp_path / "lock"):
        given_up = asyncio.create_task(take(tmp_path / "lock", waited))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
    await take(tmp_path / "lock", waited)


@pytest.mark.parametrize("killed", [False, True])
async def test_another_process_has_it_until_it_ends(tmp_path: Path, *, killed: bool) -> None:
    path, waited = tmp_path / "lock", asyncio.Event()
    async with another_process(path) as holder:
        taking = asyncio.create_task(take(path, waited))
        await waited.wait()
        assert is_locked(path)
        assert not taking.done()
        if killed:
            holder.kill()
    await taking
    assert not path.exists()


async def test_a_wait_for_another_process_that_was_given_up_takes_nothing(tmp_path: Path) -> None:
    path, waited = tmp_path / "lock", asyncio.Event()
    async with another_process(path):
        threads = set(threading.enumerate())
        taking = asyncio.create_task(take(path, waited))
        await waited.wait()
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        given_up = [thread for thread in threading.enumerate() if thread.name == "benchflow-lock"]
        given_up = [thread for thread in given_up if thread not in threads]
    for thread in given_up:
        await asyncio.to_thread(thread.join)
    assert not is_locked(path)
    await take(path, waited)


async def test_processes_take_turns(tmp_path: Path) -> None:
    path, waited = tmp_path / "lock", asyncio.Event()
    async with another_process(path) as first:
        pipe = asyncio.subprocess.PIPE
        others = [
            await asyncio.create_subprocess_exec(sys.executable, "-c", HOLDER, str(path), stdin=pipe, stdout=pipe)
            for _ in range(2)
        ]
        taking = asyncio.create_task(take(path, waited))
        await waited.wait()
        first.kill()
        said = await asyncio.gather(*(other.communicate() for other in others))
        assert [out for out, _ in said] == [b"held\n"] * 2
        await taking
    assert not path.exists()


async def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        await take(tmp_path / "file" / "lock", asyncio.Event())


def test_held_for_the_life_of_a_descriptor_and_shared_for_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    with briefly(path, shared=True), briefly(path, shared=True):
        assert is_locked(path)
    assert not is_locked(path)
    descriptor = hold(path)
    assert is_locked(path)
    os.close(descriptor)
    assert not is_locked(path)
