"""How fast tasks are listed and parsed, as ratios against what the machine can do at all, measured in the same run.

    python benchmarks/tasks.py [--n 10000]

Listing is compared with a bare walk over the same folders (`os.scandir` and one look for `task.toml`), parsing with
`tomllib` reading the same files. Ratios travel between machines; the rates beside them do not.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.task.load import load_task
from benchflow.task.source import find_tasks

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATS = 3

CONFIG = """\
schema_version = "1.4"

[task]
name = "bench/task-{index:05}"
description = "One of many."
keywords = ["generated"]

[metadata]
difficulty = "easy"
category = "files"
tags = ["generated", "benchmark"]

[agent]
timeout_sec = 600.0

[verifier]
timeout_sec = 120.0
env = {{ LANG = "C.UTF-8" }}

[environment]
cpus = 2
memory_mb = 2048
storage_mb = 10240
network_mode = "allowlist"
allowed_hosts = ["pypi.org", "*.debian.org"]

[environment.env]
MODE = "test"
"""

FILES = {
    "instruction.md": "Write the file /app/answer.txt.\n",
    "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
    "tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "#!/bin/sh\necho 42 > /app/answer.txt\n",
}


def generate(root: Path, count: int) -> None:
    for index in range(count):
        task = root / f"task-{index:05}"
        for folder in ("environment", "tests", "solution"):
            (task / folder).mkdir(parents=True)
        (task / "task.toml").write_text(CONFIG.format(index=index))
        for name, text in FILES.items():
            (task / name).write_text(text)


def walk(root: Path) -> int:
    with os.scandir(root) as entries:
        return sum(os.path.lexists(f"{entry.path}/task.toml") for entry in entries if entry.is_dir())


def parse_floor(tasks: list[Path]) -> int:
    return sum(bool(tomllib.loads((task / "task.toml").read_text())) for task in tasks)


def parse(tasks: list[Path]) -> int:
    return sum(bool(load_task(task)) for task in tasks)


def best(work: Callable[[], int], count: int) -> float:
    """Seconds of the fastest of some runs: the one that was disturbed least."""
    seconds = []
    for _ in range(REPEATS):
        gc.collect()
        start = time.perf_counter()
        done = work()
        seconds.append(time.perf_counter() - start)
        assert done == count, f"{done} of {count}"
    return min(seconds)


def report(what: str, seconds: float, floor: float, count: int, of: str) -> None:
    print(
        f"{what:8} {count / seconds:>10,.0f} tasks/s  {seconds:7.3f} s  {seconds / floor:6.2f} x {of} ({floor:.3f} s)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--n", type=int, default=10_000, help="how many tasks (default: %(default)s)")
    count = parser.parse_args().n
    with tempfile.TemporaryDirectory(prefix="benchflow-tasks-") as folder:
        root = Path(folder)
        generate(root, count)
        tasks = find_tasks(root)
        floor = best(lambda: walk(root), count)
        report("list", best(lambda: len(find_tasks(root)), count), floor, count, "a bare scandir walk")
        floor = best(lambda: parse_floor(tasks), count)
        report("parse", best(lambda: parse(tasks), count), floor, count, "tomllib on the same files")


if __name__ == "__main__":
    main()
