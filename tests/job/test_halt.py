"""A job whose container engine goes away stops once, says why, and is finished when the engine is back."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchflow.job import Job, JobConfig
from benchflow.job.store import read_rows
from benchflow.sandbox.registry import close_backends

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TASK = Path(__file__).parents[2] / "examples" / "tasks" / "write-a-file"


class Engine:
    """The real engine behind a socket that can be taken away."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._real = os.environ.get("DOCKER_HOST", "/var/run/docker.sock").removeprefix("unix://")
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self._path)

    async def close(self) -> None:
        if self._server:
            self._server.close()
            self._path.unlink(missing_ok=True)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        theirs, ours = await asyncio.open_unix_connection(self._real)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, ours))
                group.create_task(_pump(theirs, writer))
        finally:
            self._tasks.discard(task)
            ours.close()
            writer.close()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, BrokenPipeError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
        target.write_eof()


@pytest.fixture
async def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    made = Engine(tmp_path / "engine.sock")
    await made.open()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine.sock")
    yield made
    await close_backends()
    await made.close()


class Breaker:
    """Takes the engine away when the first rollout has ended."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.events: list[str] = []
        self.closing: asyncio.Task[None] | None = None

    def job_event(self, event: dict[str, Any]) -> None:
        self.events.append(event["event"])
        if event["event"] == "finished" and self.closing is None:
            self.closing = asyncio.ensure_future(self.engine.close())

    def watch(self, work: object, measurement: object) -> None:
        return None


@pytest.mark.needs("docker")
async def test_an_engine_that_goes_away_stops_the_job_once(engine: Engine, tmp_path: Path) -> None:
    breaker = Breaker(engine)
    config = JobConfig(environment="docker", attempts=8, concurrency=2)
    result = await Job(TASK, tmp_path / "jobs", config, job_name="x", observer=breaker).run()
    assert result.state == "halted"
    assert "does not work any more" in result.message
    assert breaker.events.count("halted") == 1
    assert result.passed >= 1
    assert len(result.rollouts) <= 4, "nothing was started after the engine was gone"
    await close_backends()

    await engine.open()
    final = await Job.resume(tmp_path / "jobs" / "x").run()
    assert (final.passed, final.total, final.state) == (8, 8, "finished")
    assert len([row for row in read_rows(tmp_path / "jobs" / "x") if row.scored]) == 8
