"""What a rollout costs on top of its sandbox, and what an event costs. Ratios against floors of the same run.

    python benchmarks/rollout.py [--backend local] [--rounds 20]

The floor of a rollout is the bare sandbox doing what the rollout needs of it: start, three execs, a fork with one put
and two execs, stop. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.lifecycle import Rollout
from benchflow.rollout.plan import make_plan
from benchflow.rollout.scene import Scene
from benchflow.sandbox.base import BuildContext, SandboxSpec
from benchflow.sandbox.registry import backends_in_use, get_backend
from benchflow.testing.host import HostSandbox, HostStream
from benchflow.trajectory.writer import TrajectoryWriter

if TYPE_CHECKING:
    from benchflow.sandbox.base import Sandbox

TASK = Path(__file__).parents[1] / "examples" / "tasks" / "write-a-file"
EVENTS = 20_000


async def bare(backend_name: str) -> float:
    backend = get_backend(backend_name)
    spec = SandboxSpec(image=BuildContext(TASK / "environment"))
    start = time.perf_counter()
    async with backend.create(spec) as sandbox:
        for _ in range(3):
            await sandbox.exec("true")
        async with await sandbox.fork() as fork:
            await fork.put({"x": b"x"}, "/tests")
            await fork.exec("true")
            await fork.exec("true")
    return time.perf_counter() - start


async def rollout(backend_name: str, jobs: Path) -> float:
    config = RolloutConfig(task_path=TASK, scenes=[Scene.single("oracle")], environment=backend_name, jobs_dir=jobs)
    plan = await make_plan(config)
    start = time.perf_counter()
    result = await Rollout(config, plan=plan).run()
    assert result.passed, result.error
    return time.perf_counter() - start


async def compare(backend: str, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as jobs:
        async with backends_in_use():
            await bare(backend)
            await rollout(backend, Path(jobs))
            floor = statistics.median([await bare(backend) for _ in range(rounds)])
            took = statistics.median([await rollout(backend, Path(jobs)) for _ in range(rounds)])
    print(
        f"{backend}: bare sandbox {floor * 1000:7.1f} ms   oracle rollout {took * 1000:7.1f} ms   {took / floor:.2f} x"
    )


def whole_process(backend: str) -> None:
    with tempfile.TemporaryDirectory() as jobs:
        command = [sys.executable, "-m", "benchflow.cli.app", "eval", "create", "-q"]
        command += ["-t", str(TASK), "-a", "oracle", "-e", backend, "--jobs-dir", jobs]
        times = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - start)
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        floor = time.perf_counter() - start
    print(
        f"{backend}: whole process {statistics.median(times):.2f} s"
        f"   {statistics.median(times) / floor:.0f} x python -c pass"
    )


async def events() -> None:
    """Updates of a real agent process over real pipes, to disk."""
    from benchflow.acp.connect import connect
    from benchflow.acp.session import SessionOptions
    from benchflow.testing.agents import command

    with tempfile.TemporaryDirectory() as folder, TrajectoryWriter(Path(folder) / "t.jsonl") as writer:
        sandbox = cast("Sandbox", HostSandbox())
        stream = await HostStream.start(command("flooding"))
        async with await connect(stream, sandbox, SessionOptions(cwd=folder), on_event=writer.append) as session:
            await session.prompt("100")
            before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            await session.prompt(str(EVENTS))
            took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    grew = (after.ru_maxrss - before.ru_maxrss) / 1024
    print(
        f"events: {cpu / EVENTS * 1e6:.0f} us CPU each ({took / EVENTS * 1e6:.0f} us of clock),"
        f" memory grew {grew:.1f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="local")
    parser.add_argument("--rounds", type=int, default=20)
    asked = parser.parse_args()
    asyncio.run(compare(asked.backend, asked.rounds))
    whole_process(asked.backend)
    asyncio.run(events())


if __name__ == "__main__":
    main()
