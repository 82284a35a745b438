"""A job that is killed without warning, again and again, ends like one that was left alone.

The job runs in a child that is forked from a process which has everything imported. Three kills of four come some time
after the job has begun, the fourth some time after its process has. Only that child is killed: what it started must not
keep the next one from its work.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from benchflow.job.lock import read_lock
from benchflow.job.store import job_folders, read_rows
from benchflow.sandbox.registry import get_backend

if TYPE_CHECKING:
    from pathlib import Path

    from tests.job.conftest import MakeTask

KILLS = 20

DRIVER = """
import asyncio, os, random, signal, sys, time
from benchflow.job import Job, JobConfig
import benchflow.job.job, benchflow.rollout.lifecycle, benchflow.sandbox.local.backend

tasks, jobs, kills = sys.argv[1], sys.argv[2], int(sys.argv[3])

async def run(name, resumed):
    config = JobConfig(agent=["oracle", "nop"], environment="local", attempts=2, concurrency=3)
    job = Job.resume(f"{jobs}/{name}") if resumed else Job(tasks, jobs, config, job_name=name)
    return await job.run()

def child(name, resumed=False):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if asyncio.run(run(name, resumed)).state == "finished" else 3
        finally:
            os._exit(code)
    return pid

def size(path):
    return os.path.getsize(path) if os.path.exists(path) else 0

def has_ended(pid):
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

moments = random.Random(4)
killed = number = 0
while killed < kills:
    name = f"disturbed-{number}"
    events = f"{jobs}/{name}/events.jsonl"
    before = size(events)
    pid = child(name, resumed=killed % 2 == 1 and os.path.exists(f"{jobs}/{name}/job.json"))
    while killed % 4 and size(events) == before and not has_ended(pid):
        time.sleep(0.005)
    time.sleep(moments.uniform(0, 0.8))
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        killed += 1
    elif os.WEXITSTATUS(status):
        sys.exit(f"{name} ended with {os.WEXITSTATUS(status)}")
    else:
        number += 1
for name in (f"disturbed-{number}", "undisturbed"):
    _, status = os.waitpid(child(name), 0)
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"{name} ended with {os.waitstatus_to_exitcode(status)}")
"""


@pytest.mark.needs("local")
async def test_a_killed_job_ends_like_one_that_was_left_alone(make_task: MakeTask, tmp_path: Path, local: str) -> None:
    for name in "abcdef":
        make_task(name)
    jobs = tmp_path / "jobs"
    argv = [sys.executable, "-c", DRIVER, str(tmp_path / "tasks"), str(jobs), str(KILLS)]
    driver = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.PIPE)
    _, said = await driver.communicate()
    assert driver.returncode == 0, said.decode()

    expected = results(jobs / "undisturbed")
    begun = 0
    for job in job_folders(jobs)[:-1]:
        assert results(job) == expected
        lock = read_lock(job)
        assert lock is not None
        assert Counter(key for key, *_ in expected) == Counter(lock.keys)
        events = [json.loads(line) for line in (job / "events.jsonl").read_text().splitlines()]
        begun += sum(event["event"] == "planned" for event in events)
    assert begun > KILLS / 2, "most kills came before the job had begun"
    assert not [info for info in await get_backend(local).list() if "disturbed" in info.job]


def results(job: Path) -> list[tuple[object, ...]]:
    return sorted((row.key, row.task, row.agent, row.reward) for row in read_rows(job))
