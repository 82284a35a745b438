"""Commands of an installation, run for real."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from benchflow.agent.process import KEPT_LINES, LINE_LIMIT, in_thread, run
from benchflow.errors import AgentInstallError

ROOT = Path("/")


async def test_output_goes_to_the_log_as_it_comes() -> None:
    lines: list[str] = []
    printed = await run(["sh", "-c", "echo one; echo two >&2; printf three"], cwd=ROOT, log=lines.append)
    assert lines == ["one", "two", "three"]
    assert printed == "one\ntwo\nthree"


async def test_a_failure_carries_the_end_of_the_output() -> None:
    with pytest.raises(AgentInstallError) as caught:
        await run(["sh", "-c", "seq 1000; exit 3"], cwd=ROOT, log=lambda _: None)
    assert "exited with 3" in caught.value.message
    assert caught.value.stderr.splitlines() == [str(n) for n in range(1001 - KEPT_LINES, 1001)]


async def test_what_cannot_be_started_is_named() -> None:
    with pytest.raises(AgentInstallError, match="/no/such could not be started"):
        await run(["/no/such"], cwd=ROOT, log=lambda _: None)


async def test_a_bare_command_sees_no_variable_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    ask = ["sh", "-c", 'echo "$SOME_API_KEY$OTHER$HOME"']
    env = {"OTHER": "given"}
    assert await run(ask, cwd=ROOT, env=env, log=lambda _: None) == f"secretgiven{os.environ['HOME']}"
    assert await run(ask, cwd=ROOT, env=env, bare=True, log=lambda _: None) == f"given{os.environ['HOME']}"


async def test_a_line_of_any_length() -> None:
    lines: list[str] = []
    size = 3 * LINE_LIMIT
    await run(["sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x; echo; echo end"], cwd=ROOT, log=lines.append)
    assert sum(len(line) for line in lines[:-1]) == size
    assert lines[-1] == "end"


async def test_a_cancelled_command_is_killed_with_its_children() -> None:
    pids: asyncio.Queue[int] = asyncio.Queue()
    script = "sleep 1000 & echo $!; wait"
    task = asyncio.create_task(run(["sh", "-c", script], cwd=ROOT, log=lambda line: pids.put_nowait(int(line))))
    child = os.pidfd_open(await pids.get())
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(child, ended.set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The signal is sent by then; the kernel may take a moment more to end a process nobody of ours waits for.
    async with asyncio.timeout(60):
        await ended.wait()
    asyncio.get_running_loop().remove_reader(child)
    os.close(child)


async def test_a_cancelled_thread_is_waited_for() -> None:
    read_end, write_end = os.pipe()
    done: list[bytes] = []
    task = asyncio.create_task(in_thread(lambda: done.append(os.read(read_end, 1))))
    await asyncio.sleep(0)
    task.cancel()
    asyncio.get_running_loop().call_later(0.05, os.write, write_end, b"x")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [b"x"]
    os.close(read_end)
    os.close(write_end)
