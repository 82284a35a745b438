"""What jobs cost, as ratios against floors measured in the same run.

    python benchmarks/job.py store [--n 10000]     read finished rollouts: list, metrics, resume-planning
    python benchmarks/job.py local [--n 1000]      nop rollouts on the local sandbox: what the job itself costs
    python benchmarks/job.py docker [--n 32]       oracle rollouts in Docker against a bare script of the same calls
    python benchmarks/job.py wide [--n 64]         that many oracle rollouts in Docker, all at the same time
    python benchmarks/job.py pace [--n 32]         oracle rollouts on local against the same in Docker, by network

`store` reads each thing in a process of its own and compares it with a bare loop that opens and parses the same files.
It counts processor time, which a busy machine does not change, from the first instruction: importing is part of it.
`local` says which share of the machine's time went into this process, how much of that the job adds to the same
rollouts without one (it may save something: it plans once for all of them), what a rollout costs with everything
involved, and whether memory stays flat. Each part ends with its marks and whether they were met. Ratios travel between
machines; seconds do not.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ATTEMPTS = 10
CONCURRENCY = {"local": 16, "docker": 16}
TASK = Path(__file__).parents[1] / "examples" / "tasks" / "write-a-file"

# -- reading ten thousand rollouts ---------------------------------------------------------------------------

READERS = {
    "floor: open and parse": (
        "import os, json\n"
        "for e in os.scandir(job):\n"
        "    if '__' in e.name: json.loads(open(e.path + '/result.json', 'rb').read())"
    ),
    "list, with a summary": "from benchflow.job.listing import job_info; assert job_info(job).score.total == n",
    "list, without one": (
        "from benchflow.job.listing import job_info; (job / 'summary.json').unlink(missing_ok=True)\n"
        "assert job_info(job).score.total == n"
    ),
    "metrics": "from benchflow.job import collect_metrics; assert collect_metrics(job).overall.score.total == n",
    "plan a resume": (
        "import asyncio; from benchflow.job.resume import resume_plan\n"
        "assert len(asyncio.run(resume_plan(job, {})).to_do) == 0"
    ),
}

READ = """
import sys, time
from pathlib import Path
job, n = Path(sys.argv[1]), int(sys.argv[2])
exec(sys.argv[3])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(time.process_time(), int(peak.split()[1]) // 1024)
"""


def generate(job: Path, count: int) -> None:
    """A finished job of `count` rollouts, with everything that a real one has."""
    from benchflow.job.config import JobConfig
    from benchflow.job.lock import JobLock, LockedMeasurement, LockedTask, config_json, write_lock
    from benchflow.job.store import read_rows
    from benchflow.job.summary import JobResult, write_summary
    from benchflow.rollout.result import ErrorInfo, RolloutResult, Usage
    from benchflow.rollout.store import json_text

    tasks = [f"bench/task-{index:05}" for index in range(count // ATTEMPTS)]
    job.mkdir()
    for number in range(count):
        task = number // ATTEMPTS
        folder = job / f"task-{task:05}__{number:08x}"
        folder.mkdir()
        result = RolloutResult(
            task=tasks[task],
            agent="claude-agent-acp",
            model="claude-sonnet-4-6",
            rollout_dir=folder,
            rewards={"reward": float(number * 7 % 3 == 0)},
            error=ErrorInfo("AgentTimeout", "agent", "agent_execution", "time is over") if number % 20 == 0 else None,
            n_tool_calls=number % 40,
            timing={
                "environment_setup": 1.0,
                "agent_setup": 0.5,
                "agent_execution": 60.0,
                "verifier": 3.0,
                "total": 65,
            },
            usage=Usage(input_tokens=10_000, output_tokens=2_000, cached_tokens=5_000, cost_usd=0.04),
            labels={"measurement": f"{task:020x}", "attempt": number % ATTEMPTS + 1, "try": 1},
            started_at="2026-01-01T00:00:00.000+00:00",
            finished_at="2026-01-01T00:01:05.000+00:00",
        )
        (folder / "result.json").write_text(json_text(result.to_json()))
    lock = JobLock(
        name=job.name,
        created_at="2026-01-01T00:00:00.000+00:00",
        source={"path": "tasks"},
        commit=None,
        sandbox="local",
        reason="",
        config=config_json(JobConfig(attempts=ATTEMPTS)),
        casts=[{}],
        tasks={task: LockedTask(f"tasks/{task}", "sha256:0", ["generated"]) for task in tasks},
        measurements=[
            LockedMeasurement(f"{index:020x}", task, "claude-agent-acp", "claude-sonnet-4-6", ATTEMPTS, 0)
            for index, task in enumerate(tasks)
        ],
    )
    write_lock(job, lock)
    write_summary(lock, JobResult(job, "finished", list(read_rows(job)), lock.total))


def store(count: int, folder: Path) -> None:
    job = folder / "job"
    generate(job, count)
    floor = 0.0
    for name, code in READERS.items():
        argv = [sys.executable, "-c", READ, str(job), str(count), code]
        words = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
        seconds, megabytes = float(words[0]), int(words[1])
        floor = floor or seconds
        print(f"{name:26} {seconds:7.3f} s of CPU  {seconds / floor:5.2f} x  {megabytes:4} MB")
        mark(f"{name}: within 2 s and 300 MB", seconds < 2 and megabytes < 300)


def mark(what: str, met: bool) -> None:
    print(f"    {'met   ' if met else 'MISSED'}  {what}")


# -- a thousand rollouts that do nothing ---------------------------------------------------------------------


class Memory:
    """Notes the size of this process while a job runs."""

    def __init__(self, every: int) -> None:
        self.every, self.done, self.sizes = every, 0, [self.size()]

    @staticmethod
    def size() -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") >> 20

    def job_event(self, event: dict[str, Any]) -> None:
        if event["event"] == "finished":
            self.done += 1
            if self.done % self.every == 0:
                self.sizes.append(self.size())

    def watch(self, work: object, measurement: object) -> None:  # noqa: ARG002 - the protocol's
        return None


def busy() -> tuple[float, float]:
    """Seconds that all processors worked, and that there were."""
    times = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    tick = os.sysconf("SC_CLK_TCK")
    return (sum(times) - times[3] - times[4]) / tick, sum(times) / tick


async def run_job(
    agent: str,
    backend: str,
    count: int,
    folder: Path,
    watch: Memory | None = None,
    concurrency: int = 0,
    task: Path = TASK,
) -> float:
    """Seconds that a job of `count` rollouts took. Fails unless every one of them was scored without an error."""
    from benchflow import Job, JobConfig
    from benchflow.sandbox.registry import close_backends

    wide = concurrency or CONCURRENCY[backend]
    config = JobConfig(agent=agent, environment=backend, attempts=count, concurrency=wide)
    job = Job(task, folder / f"jobs-{backend}", config, observer=watch)
    await job.plan()
    began = time.perf_counter()
    try:
        result = await job.run()
    finally:
        took = time.perf_counter() - began
        await close_backends()
    assert result.scores.scored == count, result.scores
    assert not result.errors, [row.error for row in result.rollouts if row.error][:3]
    return took


async def without_job(count: int, folder: Path) -> None:
    """The same nop rollouts on local as a job would have, as many at a time, with nothing around them."""
    from benchflow import RolloutConfig, Scene, run
    from benchflow.sandbox.registry import close_backends

    async def one(_: int) -> None:
        scenes = [Scene.single("nop")]
        config = RolloutConfig(task_path=TASK, scenes=scenes, environment="local", jobs_dir=folder, job_name="bare")
        result = await run(config)
        assert result.rewards is not None, result.error

    try:
        await limited(one, count, CONCURRENCY["local"])
    finally:
        await close_backends()


def local(count: int, folder: Path) -> None:
    from sandbox import Clock

    clock = Clock(daemons=False)
    asyncio.run(run_job("nop", "local", 1, folder))
    bare = time.process_time()
    asyncio.run(without_job(count, folder))
    bare = time.process_time() - bare
    watch = Memory(max(1, count // 5))
    worked, _ = busy()
    own, involved = time.process_time(), clock.seconds()
    took = asyncio.run(run_job("nop", "local", count, folder, watch))
    own, involved = time.process_time() - own, clock.seconds() - involved
    worked = busy()[0] - worked
    clock.close()
    cores = os.cpu_count() or 1
    print(f"{count} nop rollouts on local  {took:7.2f} s  {count / took:6.1f} /s")
    print(f"processors busy             {worked / took / cores:7.1%} (everything on this machine)")
    print(f"CPU of a rollout, {clock.name:12} {involved / count * 1000:5.1f} ms")
    print(f"of that, this process       {own / took / cores:7.1%} ({own / count * 1000:.1f} ms of CPU a rollout)")
    added = own - bare
    print(f"of that, the job itself     {added / took / cores:7.1%} ({added / count * 1000:.1f} ms of CPU a rollout)")
    print(f"memory of this process      {', '.join(f'{size} MB' for size in watch.sizes)}")
    mark("processors at least 85 % busy", worked / took / cores >= 0.85)
    mark("the job itself below 15 % of them", added / took / cores < 0.15)
    mark("memory after the first fifth grows by less than 10 MB", watch.sizes[-1] - watch.sizes[1] < 10)


# -- Docker against a bare script ----------------------------------------------------------------------------


def archive(folder: Path, prefix: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for file in sorted(folder.iterdir()):
            tar.add(file, f"{prefix}/{file.name}")
    return data.getvalue()


async def bare(count: int) -> float:
    """The same calls with nothing around them: two containers, a snapshot between, files in, commands, reward out."""
    import aiodocker

    docker = aiodocker.Docker()
    image = "benchflow-bare-benchmark"
    solution, tests = archive(TASK / "solution", "solution"), archive(TASK / "tests", "tests")
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        tar.add(TASK / "environment" / "Dockerfile", "Dockerfile")
    context.seek(0)
    await docker.images.build(fileobj=context, encoding="identity", tag=image, quiet=True)

    async def play(container: Any, files: bytes, script: str) -> None:
        await container.put_archive("/", files)
        process = await container.exec(["/bin/sh", script])
        async with process.start(detach=False) as stream:
            while await stream.read_out():
                pass

    async def one(number: int) -> None:
        config: dict[str, Any] = {"Image": image, "Cmd": ["sleep", "infinity"], "HostConfig": {"Init": True}}
        first = await docker.containers.run(config)
        try:
            await play(first, solution, "/solution/solve.sh")
            await first.commit(repository=image, tag=str(number))
            second = await docker.containers.run({**config, "Image": f"{image}:{number}"})
            try:
                await play(second, tests, "/tests/test.sh")
                reward = await second.get_archive("/logs/verifier/reward.txt")
                file = reward.extractfile("reward.txt")
                assert file is not None
                assert file.read().strip() == b"1"
            finally:
                await second.delete(force=True)
                await docker.images.delete(f"{image}:{number}", force=True)
        finally:
            await first.delete(force=True)

    try:
        await one(0)
        began = time.perf_counter()
        await limited(one, count, CONCURRENCY["docker"])
        return time.perf_counter() - began
    finally:
        await docker.images.delete(image, force=True)
        await docker.close()


async def limited(play: Callable[[int], Awaitable[None]], count: int, most: int) -> None:
    places = asyncio.Semaphore(most)

    async def one(number: int) -> None:
        async with places:
            await play(number)

    async with asyncio.TaskGroup() as group:
        for number in range(1, count + 1):
            group.create_task(one(number))


def docker(count: int, folder: Path) -> None:
    asyncio.run(run_job("oracle", "docker", 1, folder))
    floor = asyncio.run(bare(count))
    took = asyncio.run(run_job("oracle", "docker", count, folder))
    print(f"{count} oracle rollouts, bare script  {floor:7.2f} s  {count / floor:6.1f} /s   1.00 x")
    print(f"{count} oracle rollouts, as a job     {took:7.2f} s  {count / took:6.1f} /s  {took / floor:5.2f} x")
    mark("at most 1.25 times the bare script", took / floor <= 1.25)


def wide(count: int, folder: Path) -> None:
    asyncio.run(run_job("oracle", "docker", 1, folder))
    took = asyncio.run(run_job("oracle", "docker", count, folder, concurrency=count))
    print(f"{count} oracle rollouts, {count} wide  {took:7.2f} s  {count / took:6.1f} /s")
    mark("without a failure", met=True)


def pace(count: int, folder: Path) -> None:
    alone = folder / TASK.name
    shutil.copytree(TASK, alone)
    with (alone / "task.toml").open("a") as file:
        file.write('network_mode = "no-network"\n')
    for network, task in (("no network", alone), ("a public network", TASK)):
        rates = {}
        for backend, number in (("docker", count), ("local", count * 4)):
            asyncio.run(run_job("oracle", backend, 1, folder, task=task))
            rates[backend] = number / asyncio.run(run_job("oracle", backend, number, folder, task=task))
        ratio = rates["local"] / rates["docker"]
        print(f"{network:16}  docker {rates['docker']:6.1f} /s, local {rates['local']:6.1f} /s  {ratio:5.1f} x")
        mark(f"local at least 10 times the Docker rate, with {network}", ratio >= 10)


def main() -> None:
    parts: dict[str, tuple[Callable[[int, Path], None], int]] = {
        "store": (store, 10_000),
        "local": (local, 1_000),
        "docker": (docker, 32),
        "wide": (wide, 64),
        "pace": (pace, 32),
    }
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", nargs="*", choices=[[], *parts], help="what to measure (default: all)")
    parser.add_argument("--n", type=int, help="how many rollouts")
    asked = parser.parse_args()
    for name in asked.part or parts:
        measure, usual = parts[name]
        print(f"-- {name}")
        with tempfile.TemporaryDirectory(prefix="benchflow-job-") as folder:
            measure(asked.n or usual, Path(folder))


if __name__ == "__main__":
    main()
