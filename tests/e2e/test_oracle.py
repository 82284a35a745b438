"""Every example task, solved by its own solution and by nobody, on every sandbox: a whole rollout each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import benchflow as bf
from benchflow.errors import ConfigError
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.scene import Scene
from benchflow.sandbox.registry import backends_in_use, get_backend

TASKS = sorted((Path(__file__).parents[2] / "examples" / "tasks").iterdir())
BACKENDS = [
    pytest.param("local", marks=pytest.mark.needs("local")),
    pytest.param("docker", marks=pytest.mark.needs("docker")),
]


async def rollout(task: Path, agent: str, backend: str, jobs: Path) -> bf.RolloutResult:
    config = RolloutConfig(task_path=task, scenes=[Scene.single(agent)], environment=backend, jobs_dir=jobs)
    return await bf.run(config)


async def left_behind(backend: str, result: bf.RolloutResult) -> list[str]:
    async with backends_in_use():
        return [info.id for info in await get_backend(backend).list() if info.rollout == result.rollout_dir.name]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
async def test_the_solution_earns_everything(task: Path, backend: str, tmp_path: Path) -> None:
    result = await rollout(task, "oracle", backend, tmp_path)
    assert result.error is None, result.error
    assert result.passed, (result.rewards, result.notes)
    assert result.verify_level == ("live" if task.name == "start-a-server" else "fork")
    assert await left_behind(backend, result) == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
async def test_doing_nothing_earns_less(task: Path, backend: str, tmp_path: Path) -> None:
    result = await rollout(task, "nop", backend, tmp_path)
    assert result.error is None, result.error
    assert result.rewards
    assert not result.passed


@pytest.mark.needs("local")
async def test_what_a_rollout_writes(tmp_path: Path) -> None:
    task = next(task for task in TASKS if task.name == "write-a-file")
    result = await rollout(task, "oracle", "local", tmp_path)
    folder = result.rollout_dir
    assert {path.name for path in folder.iterdir()} >= {
        *("config.json", "result.json", "timing.json", "prompts.json", "agent", "trajectory", "verifier")
    }
    assert (folder / "verifier" / "reward.txt").read_text().strip() in ("1", "1.0")
    assert (folder / "verifier" / "test-stdout.txt").exists()
    timing = json.loads((folder / "timing.json").read_text())
    assert list(timing) == ["environment_setup", "agent_setup", "agent_execution", "verifier", "waiting", "total"]
    written = json.loads((folder / "result.json").read_text())
    assert written["rewards"] == {"reward": 1.0}
    assert written["verify_level"] == "fork"
    assert result.n_tool_calls == 1
    assert result.trajectory[0]["type"] == "tool_call"


@pytest.mark.needs("local")
async def test_every_problem_is_said_before_anything_starts(tmp_path: Path) -> None:
    config = RolloutConfig(
        task_path=TASKS[0],
        scenes=[Scene.single("claud")],
        environment="daytona",
        jobs_dir=tmp_path / "jobs",
        sandbox_user="a:b",
        agent_timeout=-1,
        agent_idle_timeout=0,
    )
    with pytest.raises(ConfigError) as caught:
        await bf.run(config)
    for word in ("claude", "daytona", "sandbox_user is 'a:b'", "agent_timeout is -1", "agent_idle_timeout is 0"):
        assert word in str(caught.value)
    assert not (tmp_path / "jobs").exists()


@pytest.mark.needs("local")
async def test_an_agent_that_needs_a_model_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    config = RolloutConfig(
        task_path=TASKS[0], scenes=[Scene.single("codex")], environment="local", jobs_dir=tmp_path / "jobs"
    )
    with pytest.raises(ConfigError, match="agent codex-acp needs a model"):
        await bf.run(config)
    assert not (tmp_path / "jobs").exists()
