"""One state continued several times: each branch on its own, scored, listed by its parent; the best one goes on."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

import benchflow as bf
from benchflow.gateway.ledger import read_exchanges
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.lifecycle import Rollout
from benchflow.rollout.scene import Role, Scene, Turn
from benchflow.rollout.user import FunctionUser
from benchflow.sandbox.registry import backends_in_use, get_backend
from benchflow.testing.model_server import ModelServer, Run, Say

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.trajectory.events import Event

    from .conftest import MakeTask

SHELL = "python3 /opt/agents.py shell"
ON = [
    pytest.param("local", marks=pytest.mark.needs("local")),
    pytest.param("docker", marks=pytest.mark.needs("docker")),
]
# The reward is what the agent wrote, so that each branch may have another.
TEST = "#!/bin/sh\ncat /app/answer > /logs/verifier/reward.txt\n"
DRAW = "$ printf '0.%03d\\n' $(od -An -N1 -tu1 /dev/urandom) > /app/answer; echo drew in prompt $N"


def config(task: Path, *scenes: Scene, backend: str = "local", **settings: object) -> RolloutConfig:
    return RolloutConfig(
        task_path=task,
        scenes=scenes or [Scene.single(SHELL)],
        environment=backend,
        jobs_dir=task.parent / "jobs",
        **settings,  # type: ignore[arg-type]
    )


def prompts_of(result: bf.RolloutResult) -> list[str]:
    return [str(event["text"]) for event in result.trajectory if event["type"] == "prompt"]


@pytest.mark.parametrize("backend", ON)
async def test_one_state_goes_on_in_several_sandboxes(make_task: MakeTask, backend: str) -> None:
    async with backends_in_use():
        rollout = Rollout(config(make_task(files={"tests/test.sh": TEST}), backend=backend))
        await rollout.setup()
        try:
            await rollout.start()
            await rollout.install_agent()
            await rollout.connect()
            await rollout.execute(["$ echo 0 > /app/answer; echo 5 > /app/base"])
            branches = await rollout.fork(prompts=["$ echo 0.$(cat /app/base) > /app/answer", "$ echo 1 > /app/answer"])
            half, whole = await asyncio.gather(*(branch.run() for branch in branches))
            await rollout.execute(["$ echo prompt $N"])
            await rollout.disconnect()
            final = await rollout.verify()
        finally:
            await rollout.cleanup()
    assert (half.error, whole.error) == (None, None)
    assert (half.rewards, whole.rewards, final.rewards) == ({"reward": 0.5}, {"reward": 1.0}, {"reward": 0.0})
    folder = rollout.record.folder.path
    listed = json.loads((folder / "result.json").read_text())["branches"]
    assert [branch["reward"] for branch in listed] == [0.5, 1.0]
    assert [folder / branch["folder"] for branch in listed] == [half.rollout_dir, whole.rollout_dir]
    assert all((result.rollout_dir / "result.json").exists() for result in (half, whole))
    # A branch is told what was said before it, and its trajectory begins where it does.
    (prompt,) = prompts_of(half)
    assert "> $ echo 0 > /app/answer; echo 5 > /app/base" in prompt
    assert prompt.endswith("$ echo 0.$(cat /app/base) > /app/answer")
    said = [event["text"] for event in rollout.record.events() if event["type"] == "message"]
    assert said[-1] == "prompt 2\n", "the parent's own session goes on"


@pytest.mark.parametrize("backend", ON)
async def test_the_best_of_a_turn_goes_on(make_task: MakeTask, backend: str) -> None:
    scene = Scene(
        [Role("agent", SHELL)],
        [
            Turn("agent", "$ echo first > /app/first; echo prompt $N"),
            Turn("agent", DRAW, best_of=3),
            Turn("agent", "$ cat /app/first; echo prompt $N"),
        ],
    )
    result = await bf.run(config(make_task(files={"tests/test.sh": TEST}), scene, backend=backend))
    assert result.error is None, result.error
    rewards = [branch["reward"] for branch in result.branches]
    assert len(rewards) == 3
    assert result.reward == max(rewards)
    (kept,) = [branch for branch in result.branches if branch["kept"]]
    assert kept["reward"] == max(rewards)
    # The winner's session is the rollout's from then on, and what it said is in the rollout's trajectory once.
    said = [str(event["text"]) for event in result.trajectory if event["type"] == "message"]
    assert said == ["prompt 1\n", "drew in prompt 1\n", "first\nprompt 2\n"]
    first, drew, last = prompts_of(result)
    assert (first, last) == (scene.turns[0].prompt, scene.turns[2].prompt)
    assert drew.endswith(DRAW)
    assert "> $ echo first > /app/first; echo prompt $N" in drew, "a new session is told what was said before"
    assert result.n_tool_calls == 3
    written = json.loads((result.rollout_dir / "prompts.json").read_text())
    assert [prompt["prompt"] for prompt in written] == prompts_of(result)
    for branch in result.branches:
        assert json.loads((result.rollout_dir / branch["folder"] / "result.json").read_text())["passed"] is False


@pytest.mark.needs("local")
async def test_each_round_of_a_user_may_be_the_best_of_several(make_task: MakeTask) -> None:
    scene = Scene([Role("agent", SHELL)], [Turn("agent", best_of=2)])
    user = FunctionUser(lambda number, *_: DRAW if number < 2 else None)
    result = await bf.run(config(make_task(files={"tests/test.sh": TEST}), scene, user=user, branch_concurrency=1))
    assert result.error is None, result.error
    assert len(result.branches) == 4
    rewards = [branch["reward"] for branch in result.branches]
    assert [found["reward"] for found in result.rounds] == [max(rewards[:2]), max(rewards[2:])]
    assert all(found["n_tool_calls"] == 1 for found in result.rounds)


@pytest.mark.needs("local")
async def test_an_agent_that_fails_in_every_branch_fails(make_task: MakeTask) -> None:
    scene = Scene([Role("agent", "python3 /opt/agents.py dying")], [Turn("agent", best_of=2), Turn("agent", "more")])
    result = await bf.run(config(make_task(), scene))
    assert result.error is not None
    assert result.error.kind == "AgentGone"
    assert result.rewards == {"reward": 0.0}
    assert [branch["error"]["kind"] for branch in result.branches] == ["AgentGone"] * 2
    assert len(prompts_of(result)) == 1


@pytest.mark.needs("local")
async def test_a_verifier_that_cannot_score_the_branches_is_the_results_error(make_task: MakeTask) -> None:
    scene = Scene([Role("agent", SHELL)], [Turn("agent", "$ true", best_of=2)])
    result = await bf.run(config(make_task(files={"tests/test.sh": "#!/bin/sh\ntrue\n"}), scene))
    assert result.error is not None
    assert result.error.boundary == "verifier"
    assert result.rewards is None
    assert [branch["reward"] for branch in result.branches] == [None, None]


@pytest.mark.needs("local")
async def test_what_branches_use_is_counted_and_kept(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-planted-0123456789"
    async with ModelServer([Run("echo 1 > /app/answer"), Say("Done.")]) as server:
        monkeypatch.setenv("OPENAI_API_KEY", key)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/v1")
        turns = [Turn("agent", best_of=2), Turn("agent", "Is it right?", best_of=2)]
        scene = Scene([Role("agent", "goose", "openai/gpt-5.5")], turns)
        result = await bf.run(config(make_task(files={"tests/test.sh": TEST}), scene, branch_concurrency=1))
        assert "Create /app/done." in server.turns[-1].text, "what was said before is in the branch's request"
    assert result.error is None, result.error
    assert result.passed
    kept, lost = ([exchanged(result.rollout_dir / one["folder"]) for one in result.branches if one["kept"] is which]
                  for which in (True, False))  # fmt: skip
    assert (len(kept), len(lost)) == (2, 2)
    assert exchanged(result.rollout_dir) == sum(kept), "the winners' exchanges are the rollout's own"
    assert result.usage.requests == sum(kept) + sum(lost), "what the losers used counts, too"
    for one in [branch for branch in result.branches if not branch["kept"]]:
        written = json.loads((result.rollout_dir / one["folder"] / "result.json").read_text())
        assert written["usage"]["requests"] == exchanged(result.rollout_dir / one["folder"])
    for file in result.rollout_dir.rglob("*"):
        assert not file.is_file() or key.encode() not in file.read_bytes(), file


def exchanged(folder: Path) -> int:
    """How often a model answered."""
    kept = read_exchanges(folder / "trajectory" / "llm_trajectory.jsonl")
    return sum(exchange["tokens"] is not None for exchange in kept)


@pytest.mark.parametrize("backend", ON)
async def test_a_branch_may_have_another_model(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    async with ModelServer([Run("echo 1 > /app/answer"), Say("Done.")]) as server, backends_in_use():
        monkeypatch.setenv("OPENAI_API_KEY", "sk-stand-in-1")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/v1")
        scene = Scene.single("goose", "openai/gpt-5.5")
        rollout = Rollout(config(make_task(files={"tests/test.sh": TEST}), scene, backend=backend))
        await rollout.setup()
        try:
            await rollout.start()
            await rollout.install_agent()
            branches = await rollout.fork(models=["openai/gpt-5-mini", "openai/gpt-5.5"])
            results = [await branch.run() for branch in branches]
        finally:
            await rollout.cleanup()
        models = [str(request.body.get("model")) for request in server.turns]
    assert [result.error for result in results] == [None, None]
    assert [result.rewards for result in results] == [{"reward": 1.0}] * 2
    assert list(dict.fromkeys(models)) == ["gpt-5-mini", "gpt-5.5"]
    assert [branch["model"] for branch in rollout.record.result.branches] == ["openai/gpt-5-mini", "openai/gpt-5.5"]


class Watcher:
    """Says when a rollout reaches a phase."""

    def __init__(self, name: str) -> None:
        self.reached = asyncio.Event()
        self._name = name

    def phase(self, name: str) -> None:
        if name == self._name:
            self.reached.set()

    def event(self, event: Event) -> None:
        pass


@pytest.mark.parametrize("backend", ON)
async def test_cancelling_leaves_no_branch(make_task: MakeTask, backend: str) -> None:
    scene = Scene([Role("agent", "python3 /opt/agents.py hanging")], [Turn("agent", best_of=3)])
    watcher = Watcher("agent_execution")
    async with backends_in_use():
        rollout = Rollout(config(make_task(), scene, backend=backend), observer=watcher)
        running = asyncio.create_task(rollout.run())
        await watcher.reached.wait()
        await asyncio.sleep(0.5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        names = [rollout.record.folder.name, *(branch["folder"] for branch in rollout.record.result.branches)]
        left = [info for info in await get_backend(backend).list() if any(info.rollout in name for name in names)]
    assert not left
    assert (rollout.record.folder.path / "result.json").exists()
    for branch in rollout.record.result.branches:
        assert (rollout.record.folder.path / branch["folder"] / "result.json").exists()


@pytest.mark.parametrize("backend", ON)
async def test_the_best_of_one_role_among_several(make_task: MakeTask, backend: str) -> None:
    ask = """$ echo b says $N; echo '{"to": "a", "content": "Draw one."}' > /app/.outbox/a.json"""
    tell = """$ echo '{"to": "b", "content": "drawn"}' > /app/.outbox/b.json"""
    scene = Scene(
        [Role("a", SHELL), Role("b", SHELL)],
        [Turn("b", ask), Turn("a", f"{DRAW}\n{tell}", best_of=2), Turn("b", "$ echo b again says $N")],
    )
    result = await bf.run(config(make_task(files={"tests/test.sh": TEST}), scene, backend=backend))
    assert result.error is None, result.error
    assert result.reward == max(branch["reward"] for branch in result.branches)
    _, drawn, again = prompts_of(result)
    assert "b says" not in drawn, "a is told nothing of what was said to b"
    assert "Draw one." in drawn, "a message reaches the branches"
    written = json.loads((result.rollout_dir / "prompts.json").read_text())
    assert [one["prompt"] for one in written] == prompts_of(result), "and is kept with the prompt"
    assert "> $ echo b says $N" in again, "the session of b did not outlive the fork, so it is told what was said"
    assert "/dev/urandom" not in again
    assert "drawn" in again, "the winner's message arrives"
