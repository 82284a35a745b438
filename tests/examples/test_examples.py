"""The shipped example tasks: each loads without a word of complaint, and its solution and nothing else earns 1.0.

The scripts run here in a folder that stands in for the root of the image: the files that the Dockerfile copies are put
there, and the few absolute paths that tasks use are rewritten to it. A sandbox is not needed for that.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchflow.task.load import load_task, read_task
from benchflow.task.source import find_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.task.task import Step, Task, Upload

EXAMPLES = Path(__file__).parents[2] / "examples/tasks"
NAMES = ["fix-a-bug", "json-reward", "multi-step", "no-network", "start-a-server", "write-a-file"]
PORT = b"8765"

_PLACES = re.compile(rb"(?<![\w./-])/(?=(?:app|logs|tests|solution)\b)")
_COPY = re.compile(r"^COPY (\S+) (\S+)$", re.MULTILINE)
_SIMPLE = re.compile(r"(FROM|ARG|ENV|WORKDIR|COPY|RUN) .*")


def free_port() -> int:
    """A port that the system gives to nobody who asks for any, so that it is still free when the server starts."""
    for port in random.sample(range(20_000, 30_000), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


class Root:
    """A folder that stands in for the root of a task's image."""

    def __init__(self, folder: Path, task: Task) -> None:
        self.folder = folder
        self.task = task
        self.port = str(free_port()).encode()
        (folder / "app").mkdir()
        for source, target in _COPY.findall((task.environment_dir / "Dockerfile").read_text()):
            self._copy(task.environment_dir / source, target)

    def solve(self, step: Step | None = None) -> None:
        if step and step.workdir:
            self._copy(step.workdir, "/app/")
        self._upload("solution", step)
        done = self._run("solution/solve.sh")
        assert done.returncode == 0, done.stdout

    def verify(self, step: Step | None = None) -> dict[str, float]:
        self._upload("tests", step)
        logs = self.folder / "logs/verifier"
        shutil.rmtree(logs, ignore_errors=True)
        done = self._run("tests/test.sh")
        print(done.stdout)
        if (logs / "reward.json").exists():
            rewards: dict[str, float] = json.loads((logs / "reward.json").read_text())
            return rewards
        return {"reward": float((logs / "reward.txt").read_text())}

    def stop(self) -> None:
        """End what a solution left running, the processes that run a program of this root, and wait for their end."""
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and os.fsencode(self.folder) in (entry / "cmdline").read_bytes():
                    process = os.pidfd_open(int(entry.name))
                    try:
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                        select.select([process], [], [])
                    finally:
                        os.close(process)

    def _copy(self, source: Path, target: str) -> None:
        place = self.folder / target.lstrip("/")
        if source.is_dir():
            shutil.copytree(source, place, dirs_exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place)

    def _upload(self, kind: Upload, step: Step | None) -> None:
        shutil.rmtree(self.folder / kind, ignore_errors=True)
        for file, name in self.task.upload_files(kind, step):
            place = self.folder / kind / name
            place.parent.mkdir(parents=True, exist_ok=True)
            text = _PLACES.sub(os.fsencode(self.folder) + b"/", file.read_bytes())
            place.write_bytes(text.replace(PORT, self.port))
            place.chmod(file.stat().st_mode)

    def _run(self, script: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(self.folder)}
        return subprocess.run(
            [str(self.folder / script)],
            cwd=self.folder / "app",
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(tmp_path: Path, name: str) -> Iterator[Root]:
    made = Root(tmp_path, load_task(EXAMPLES / name))
    try:
        yield made
    finally:
        made.stop()


def test_these_are_all_of_them() -> None:
    assert [path.name for path in find_tasks(EXAMPLES)] == NAMES


def test_it_loads_without_a_problem_and_says_what_it_is(name: str) -> None:
    task, problems = read_task(EXAMPLES / name)
    assert problems == []
    assert task is not None
    assert task.name == f"benchflow/{name}"
    raw = tomllib.loads((EXAMPLES / name / "task.toml").read_text())
    assert raw["schema_version"] == "1.4"
    assert raw["metadata"].keys() >= {"difficulty", "category", "tags"}
    assert task.config.agent.timeout_sec is not None


def test_its_image_is_made_of_debian_and_simple_lines(name: str) -> None:
    lines = (EXAMPLES / name / "environment/Dockerfile").read_text().splitlines()
    assert lines[0] == "FROM debian:bookworm-slim"
    assert all(_SIMPLE.fullmatch(line) for line in lines)
    installs = any("apt-get install" in line for line in lines)
    assert installs == (name in {"fix-a-bug", "start-a-server"})


def test_the_solution_earns_everything_and_nothing_earns_less(root: Root) -> None:
    for step in root.task.steps or (None,):
        before = root.verify(step)
        assert before["reward"] < 1.0
        root.solve(step)
        after = root.verify(step)
        assert set(after.values()) == {1.0}
        assert after.keys() == before.keys()


WRONG = {
    "write-a-file": {"greeting.txt": "Hello from the sandbox!"},
    "fix-a-bug": {"opening_hours.py": "import os\nos._exit(0)\n"},
    "no-network": {"restored.txt": ""},
    "json-reward": {"clean.csv": "time,sensor,celsius\nx\n"},
}


@pytest.mark.parametrize("name", sorted(WRONG), indirect=True)
def test_a_wrong_answer_is_scored_and_earns_less(root: Root, name: str) -> None:
    for file, text in WRONG[name].items():
        (root.folder / "app" / file).write_text(text)
    assert 0.0 <= root.verify()["reward"] < 1.0


@pytest.mark.parametrize("name", ["json-reward"], indirect=True)
def test_each_metric_measures_one_thing(root: Root, name: str) -> None:
    root.solve()
    clean = root.folder / "app/clean.csv"
    header, *rows = clean.read_text().splitlines()

    def score(lines: list[str]) -> dict[str, float]:
        clean.write_text("".join(f"{line}\n" for line in lines))
        return {metric: value for metric, value in root.verify().items() if metric != "reward"}

    best = dict.fromkeys(("header", "complete", "clean", "sorted"), 1.0)
    assert score([header, *rows]) == best
    assert score(["a,b,c", *rows]) == best | {"header": 0.0}
    assert score([header, *reversed(rows)]) == best | {"sorted": 0.0}
    half = score([header, *rows[: len(rows) // 2]])
    assert half == best | {"complete": pytest.approx(0.5, abs=0.01)}
    twice = score([header, *(row for row in rows for _ in range(2))])
    assert twice == best | {"clean": pytest.approx(0.5)}


@pytest.mark.parametrize("name", ["multi-step"], indirect=True)
def test_the_first_step_must_be_passed_and_its_answer_is_not_enough_for_the_second(root: Root, name: str) -> None:
    count, combine = root.task.steps
    assert count.config.min_reward == 1.0
    root.solve(count)
    assert root.verify(combine) == {"reward": 0.0}


@pytest.mark.parametrize("name", ["no-network"], indirect=True)
def test_no_network_means_none(root: Root, name: str) -> None:
    assert root.task.config.environment.network_mode == "no-network"


@pytest.mark.parametrize("name", ["start-a-server"], indirect=True)
def test_a_server_that_stopped_earns_nothing(root: Root, name: str) -> None:
    root.solve()
    root.stop()
    assert root.verify() == {"reward": 0.0}
