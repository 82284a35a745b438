"""The disk that jobs take: bounded, said, and given back."""

from __future__ import annotations

import json
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

import aiodocker
import pytest

from benchflow.job import Job, JobConfig
from benchflow.sandbox.base import BuildContext, ImageRef, SandboxSpec
from benchflow.sandbox.docker.image import TASK_IMAGES
from benchflow.sandbox.dockerignore import context_digest
from benchflow.sandbox.registry import close_backends, get_backend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.job.conftest import MakeTask


@pytest.mark.needs("local")
async def test_a_full_allowance_stops_the_job_which_then_goes_on_with_a_larger_one(
    make_task: MakeTask, tmp_path: Path, local: str
) -> None:
    for name in ("a", "b", "c"):
        make_task(name, solve="#!/bin/sh\nhead -c 3000000 /dev/urandom > /logs/artifacts/big\ntouch /app/done\n")
    jobs = tmp_path / "jobs"
    caches = sum((await get_backend(local).disk_use()).values()) // 1_000_000
    config = JobConfig(environment=local, concurrency=1, max_disk_mb=caches + 4)
    stopped = await Job(tmp_path / "tasks", jobs, config, job_name="x").run()
    assert stopped.state == "halted"
    assert 0 < len(stopped.rollouts) < 3
    for words in ("--max-disk", "bench cleanup --images", str(jobs), "resume the job"):
        assert words in stopped.message
    again = await Job.resume(jobs / "x").run()
    assert (again.state, len(again.rollouts)) == ("halted", len(stopped.rollouts))
    done = await Job.resume(jobs / "x", limits={"max_disk_mb": caches + 1000}).run()
    assert (done.state, done.passed) == ("finished", 3)


class TestImages:
    pytestmark = pytest.mark.needs("docker")

    @pytest.fixture
    async def tasks(self, make_task: MakeTask, tmp_path: Path) -> AsyncIterator[Path]:
        """Two tasks with images that nobody has built before."""
        folders = [make_task(name) for name in ("a", "b")]
        for folder in folders:
            text = f"FROM debian:bookworm-slim\nLABEL unique={secrets.token_hex(8)}\nWORKDIR /app\n"
            (folder / "environment" / "Dockerfile").write_text(text)
        yield tmp_path / "tasks"
        await close_backends()
        async with aiodocker.Docker() as docker:
            for folder in folders:
                with suppress(aiodocker.DockerError):
                    await docker.images.delete(image(folder), force=True)

    async def test_they_go_when_their_task_is_done(self, tasks: Path, tmp_path: Path) -> None:
        config = JobConfig(environment="docker", concurrency=1, attempts=2, remove_images=True, include=["a"])
        kept = BuildContext(tasks / "b" / "environment")
        await get_backend("docker").prepare(kept)
        result = await Job(tasks, tmp_path / "jobs", config, job_name="x").run()
        assert result.passed == 2
        events = [json.loads(line) for line in (tmp_path / "jobs" / "x" / "events.jsonl").read_text().splitlines()]
        said = [event["message"] for event in events if event["event"] == "remark"]
        assert any(image(tasks / "a") in line for line in said)
        async with aiodocker.Docker() as docker:
            with pytest.raises(aiodocker.DockerError):
                await docker.images.inspect(image(tasks / "a"))
            assert await docker.images.inspect(image(tasks / "b"))

    async def test_one_that_somebody_uses_stays(self, tasks: Path) -> None:
        backend = get_backend("docker")
        source = BuildContext(tasks / "a" / "environment")
        async with backend.create(SandboxSpec(source)):
            assert await backend.prune(only=source) == []
        assert await backend.prune(only=source, older_than=1000) == []
        assert await backend.prune(only=ImageRef("debian:bookworm-slim")) == []
        assert [image(tasks / "a") in name for name in await backend.prune(only=source)] == [True]


def image(task: Path) -> str:
    return f"{TASK_IMAGES}:{context_digest(task / 'environment', 'Dockerfile')[:40]}"
