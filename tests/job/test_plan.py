"""Everything that can be wrong is said before anything starts, each thing once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchflow.errors import ConfigError, TaskError
from benchflow.job.config import JobConfig
from benchflow.job.plan import measure_all

if TYPE_CHECKING:
    from tests.job.conftest import MakeTask

pytestmark = pytest.mark.needs("local")


async def test_the_matrix(make_task: MakeTask, local: str) -> None:
    folders = [make_task(name) for name in ("a", "b")]
    found = await measure_all(JobConfig(agent=["oracle", "nop"], model=["m", "n"], environment=local), folders)
    assert [(one.agent, one.model, one.task) for one in found] == [
        (agent, model, task) for agent in ("oracle", "nop") for model in ("m", "n") for task in ("demo/a", "demo/b")
    ]
    assert len({one.id for one in found}) == 8
    assert all(one.tags == ["small"] for one in found)
    assert {one.plan.backend_reason for one in found} == {"sandbox: local"}


async def test_an_agent_and_its_other_name_are_one(
    make_task: MakeTask, local: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    config = JobConfig(agent=["codex", "codex-acp"], environment=local, model="openai/gpt")
    folder = make_task("a")
    (folder / "task.toml").write_text('[task]\nname = "demo/a"\n')
    assert len(await measure_all(config, [folder])) == 1


async def test_every_problem_of_every_task_once(make_task: MakeTask, local: str) -> None:
    folders = [make_task(name) for name in ("a", "b", "broken", "unsolved")]
    (folders[2] / "task.toml").write_text("schema_version = 7\n[environment]\ncpus = 'many'\n")
    (folders[3] / "solution" / "solve.sh").unlink()
    config = JobConfig(agent=["oracle", "claud"], environment=local, services=["gmial"])
    with pytest.raises(ConfigError) as caught:
        await measure_all(config, folders)
    said = str(caught.value)
    assert said.count("no agent is called 'claud'") == 1
    assert "(3 tasks)" in said
    assert said.count("cpus") == 1
    assert said.count("solve.sh does not exist") == 1
    assert said.count("did you mean 'gmail'") == 1


async def test_without_a_sandbox_the_rest_is_still_checked(make_task: MakeTask, local: str) -> None:
    folders = [make_task(name) for name in ("a", "b", "c")]
    (folders[2] / "task.toml").write_text("[environment]\ncpus = 'many'\n")
    with pytest.raises(ConfigError) as caught:
        await measure_all(JobConfig(agent="claud", environment="dockr"), folders)
    assert all(word in str(caught.value) for word in ("dockr", "claud", "cpus"))


async def test_the_only_problem_is_raised_as_it_is(make_task: MakeTask, local: str) -> None:
    folder = make_task("a")
    (folder / "instruction.md").unlink()
    with pytest.raises(TaskError):
        await measure_all(JobConfig(environment=local), [folder, make_task("b")])


async def test_two_tasks_of_one_name(make_task: MakeTask, local: str) -> None:
    folders = [make_task("a"), make_task("b")]
    (folders[1] / "task.toml").write_text((folders[0] / "task.toml").read_text())
    with pytest.raises(ConfigError, match="two of the tasks are named 'demo/a'"):
        await measure_all(JobConfig(environment=local), folders)
