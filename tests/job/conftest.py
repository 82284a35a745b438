"""What the tests of jobs share: small tasks, rows and results, and a local sandbox that needs no container engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from benchflow.job.row import Row, row_of
from benchflow.rollout.result import ErrorInfo, RolloutResult
from benchflow.rollout.store import write_json
from benchflow.sandbox.registry import close_backends

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

TOML = '[task]\nname = "demo/{name}"\n[metadata]\ntags = ["{tag}"]\n[environment]\nnetwork_mode = "no-network"\n'
TEST = "#!/bin/sh\nmkdir -p /logs/verifier\n[ -f /app/done ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n"
SOLVE = "#!/bin/sh\ntouch /app/done\n"


class MakeTask(Protocol):
    def __call__(self, name: str, *, test: str = TEST, solve: str = SOLVE, tag: str = "small") -> Path: ...


class MakeRow(Protocol):
    def __call__(self, task: str = "t", reward: float | None = 1.0, **fields: Any) -> Row: ...


class WriteResult(Protocol):
    def __call__(self, job: Path, name: str, reward: float | None = 1.0, **fields: Any) -> Path: ...


@pytest.fixture
def make_task(tmp_path: Path) -> MakeTask:
    """Makes a task that nobody needs a network for, in tmp_path/tasks."""

    def make(name: str, *, test: str = TEST, solve: str = SOLVE, tag: str = "small") -> Path:
        folder = tmp_path / "tasks" / name
        files = {
            "task.toml": TOML.format(name=name, tag=tag),
            "instruction.md": "Make /app/done.\n",
            "environment/Dockerfile": "FROM not-there:1\nWORKDIR /app\n",
            "tests/test.sh": test,
            "solution/solve.sh": solve,
        }
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return folder

    return make


def error_info(kind: str = "SandboxError", boundary: str = "sandbox", **fields: Any) -> ErrorInfo:
    settings = {"phase": "environment_setup", "message": "it broke", "retryable": True, **fields}
    return ErrorInfo(kind, boundary, **settings)


@pytest.fixture
def make_error() -> Any:
    return error_info


@pytest.fixture
def make_row() -> MakeRow:
    def make(task: str = "t", reward: float | None = 1.0, **fields: Any) -> Row:
        rewards = None if reward is None else {"reward": reward}
        labels: dict[str, str | int] = {name: fields.pop(name) for name in ("measurement", "attempt") if name in fields}
        labels["try"] = fields.pop("tried", 1)
        folder = fields.pop("rollout_dir", Path(f"{task}__0"))
        result = RolloutResult(
            **{"task": task, "agent": "a", "model": None, "rollout_dir": folder, "rewards": rewards, **fields}
        )
        result.labels = {"measurement": f"m-{task}"}
        result.labels |= labels
        return row_of(result.to_json(), folder)

    return make


@pytest.fixture
def write_result() -> WriteResult:
    """Writes a rollout's folder as a finished rollout leaves it."""

    def write(job: Path, name: str, reward: float | None = 1.0, **fields: Any) -> Path:
        folder = job / name
        folder.mkdir(parents=True)
        labels = fields.pop("labels", {})
        rewards = None if reward is None else {"reward": reward}
        task = fields.pop("task", name.partition("__")[0])
        result = RolloutResult(task=task, agent="a", model="m", rollout_dir=folder, rewards=rewards, **fields)
        result.labels = labels
        write_json(folder / "config.json", {"task": task})
        write_json(folder / "result.json", result.to_json())
        return folder

    return write


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def local_environment(shared_cache: Path) -> Iterator[pytest.MonkeyPatch]:
    """Sandboxes are made on the host's root; no container engine is asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(shared_cache))
        patch.setenv("DOCKER_HOST", f"unix://{shared_cache}/no.sock")
        patch.delenv("BENCHFLOW_LOCAL_DIR", raising=False)
        patch.delenv("BENCHFLOW_LOCAL_BASE", raising=False)
        yield patch


@pytest.fixture
async def local(local_environment: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The name of the local backend, closed after the test."""
    yield "local"
    await close_backends()
