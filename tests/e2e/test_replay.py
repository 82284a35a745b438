"""A recorded rollout, run again by the command: where it stops, and who goes on."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

import benchflow as bf
from benchflow.gateway.ledger import read_exchanges
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.scene import Role, Scene, Turn
from benchflow.testing.model_server import ModelServer, Run, Say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TASK = Path(__file__).parents[2] / "examples" / "tasks" / "write-a-file"
SOLVE = "printf 'Hello from the sandbox!\\n' > /app/greeting.txt; cat /app/greeting.txt; date"
KEY = "sk-planted-for-replay"

pytestmark = [pytest.mark.needs("local"), pytest.mark.asyncio(loop_scope="module")]


@dataclass(frozen=True)
class Recorded:
    task: Path
    folder: Path
    result: bf.RolloutResult


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recorded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Recorded]:
    """One rollout of a real agent, whose provider is gone by the time it is replayed."""
    base = tmp_path_factory.mktemp("replay")
    task = base / "task"
    shutil.copytree(TASK, task)
    role = Role("agent", "goose", "openai/gpt-5.5", {"FAVOURITE": "blue"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        async with ModelServer([Run(SOLVE), Say("It is written.")]) as server:
            patch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
            scene = Scene(roles=[role], turns=[Turn("agent")])
            config = RolloutConfig(task_path=task, scenes=[scene], environment="local", jobs_dir=base / "jobs")
            result = await bf.run(config)
    assert result.passed, result.error
    yield Recorded(task, result.rollout_dir, result)


def rollouts(jobs: Path) -> list[Path]:
    return list(jobs.glob("*/*__*"))


async def bench(*args: str | Path, **environ: str) -> tuple[int, str, str]:
    """Exit code, output and errors of `bench`, which knows no provider but what it is given here."""
    bare = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "benchflow.cli.app", "replay", *map(str, args)),
        env={**bare, **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return process.returncode, out.decode(), err.decode()


async def test_a_replay_is_a_rollout_like_any_other(recorded: Recorded, tmp_path: Path) -> None:
    given = ("--agent-env", "FAVOURITE=blue", "--jobs-dir", tmp_path)
    code, out, _ = await bench(recorded.folder, *given)
    assert code == 0
    assert "reward 1 (recorded: reward 1)" in out
    assert "Requests to a provider: 0" in out
    (folder,) = rollouts(tmp_path)
    result: Any = json.loads((folder / "result.json").read_text())
    config: Any = json.loads((folder / "config.json").read_text())
    assert result["labels"] == config["labels"] == {"replay_of": str(recorded.folder)}
    assert (result["passed"], result["usage"]["cost_usd"]) == (True, 0.0)
    assert all(one["replayed"] for one in read_exchanges(folder / "trajectory" / "llm_trajectory.jsonl"))
    code, out, _ = await bench(folder, *given, "--json")
    assert (code, json.loads(out)["rewards"]) == (0, {"reward": 1.0}), "a replay can be replayed"


async def test_what_is_needed_to_run_again_is_kept_and_no_value_of_a_variable(recorded: Recorded) -> None:
    text = (recorded.folder / "config.json").read_text()
    config: Any = json.loads(text)
    assert config["task_path"] == str(recorded.task)
    assert config["task_digest"].startswith("sha256:")
    assert config["players"]["agent"] == {
        "agent": "goose",
        "version": "1.52.0",
        "model": "openai/gpt-5.5",
        "provider": "openai",
        "credential": "OPENAI_API_KEY from the environment",
    }
    assert config["scenes"][0]["roles"][0]["env"] == ["FAVOURITE"]
    assert KEY not in text
    assert "blue" not in text
    code, _, err = await bench(recorded.folder)
    assert code == 1
    assert "the values of FAVOURITE are not kept with a rollout" in err


async def test_a_task_that_has_changed_is_refused_and_then_the_difference_is_shown(
    recorded: Recorded, tmp_path: Path
) -> None:
    task = tmp_path / "task"
    shutil.copytree(recorded.task, task)
    (task / "instruction.md").write_text("Create the file /app/farewell.txt.\n")
    given = ("--task", task, "--agent-env", "FAVOURITE=blue", "--jobs-dir", tmp_path / "jobs")
    code, out, err = await bench(recorded.folder, *given)
    assert (code, out) == (1, "")
    assert "the task has changed" in err
    code, out, _ = await bench(recorded.folder, *given, "--changed-task", "--json")
    again = json.loads(out)
    assert code == 1
    assert "the replay ends at turn 1: request.body." in again["difference"]
    assert "/app/greeting.txt" in again["difference"]
    assert "/app/farewell.txt" in again["difference"]
    assert (again["error"]["kind"], again["rewards"], again["provider_requests"]) == ("ModelRefused", None, 0)


async def test_another_model_goes_on_from_a_turn(recorded: Recorded, tmp_path: Path) -> None:
    async with ModelServer([Run("true"), Say("I took over.")]) as live:
        code, out, err = await bench(
            *(recorded.folder, "--from-turn", "2", "-m", "openai/gpt-5"),
            *("--agent-env", "FAVOURITE=blue", "--jobs-dir", tmp_path, "--json"),
            OPENAI_API_KEY=KEY,
            OPENAI_BASE_URL=f"{live.url}/v1",
        )
        again = json.loads(out)
        assert (code, again["error"], again["rewards"]) == (0, None, {"reward": 1.0}), err
        assert again["provider_requests"] == len(live.requests) >= 1
        assert "Hello from the sandbox!" in live.turns[-1].text, "the recorded turn was performed here"
    folder = Path(again["rollout_dir"])
    assert "I took over." in (folder / "trajectory" / "acp_trajectory.jsonl").read_text()
    assert json.loads((folder / "result.json").read_text())["labels"]["from_turn"] == 2


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["/nowhere"], 1, "not the folder of a rollout"),
        (["RECORDED", "-m", "openai/gpt-5"], 2, "say from which turn"),
        (["RECORDED", "--from-turn", "9"], 1, "it has 2 turns"),
        (["RECORDED", "--from-turn", "2"], 1, "OPENAI_API_KEY"),
        (["RECORDED", "--task", "/nowhere"], 1, "the task is not there any more"),
    ],
)
async def test_mistakes_are_said_before_anything_starts(
    recorded: Recorded, tmp_path: Path, args: list[str], code: int, words: str
) -> None:
    folder = [str(recorded.folder) if arg == "RECORDED" else arg for arg in args]
    ended, out, err = await bench(*folder, "--agent-env", "FAVOURITE=blue", "--jobs-dir", tmp_path)
    assert (ended, out) == (code, "")
    assert words in err
    assert not rollouts(tmp_path)
