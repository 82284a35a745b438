"""What makes two rollouts the same measurement, and what does not."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from benchflow.job.identity import measurement_id
from benchflow.job.plan import measure
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.scene import Role, Scene, Turn

if TYPE_CHECKING:
    from pathlib import Path

    from tests.job.conftest import MakeTask

pytestmark = pytest.mark.needs("local")


async def ident(folder: Path, **settings: Any) -> str:
    return (await measure(RolloutConfig(**{"task_path": folder, "environment": "local", **settings}))).id


async def test_what_changes_the_measurement(make_task: MakeTask, local: str) -> None:
    folder = make_task("t")
    scenes = [Scene.single("nop", "m")]
    base = await ident(folder, scenes=scenes)
    others: list[dict[str, Any]] = [
        {"scenes": [Scene.single("oracle", "m")]},
        {"scenes": [Scene.single("nop", "n")]},
        {"scenes": [Scene.single("nop", "m", prompts=[None, "again"])]},
        {"scenes": [Scene.single("nop", "m", name="other")]},
        {"scenes": [Scene([Role("agent", "nop", "m", {"A": "1"})], [Turn("agent")])]},
        {"scenes": scenes, "sandbox_user": None},
        {"scenes": scenes, "agent_timeout": 5},
        {"scenes": scenes, "agent_env": {"MODE": "fast"}},
        {"scenes": scenes, "agent_env": {"MODE": "slow"}},
    ]
    found = [await ident(folder, **other) for other in others]
    assert len({base, *found}) == len(others) + 1
    (folder / "tests" / "test.sh").write_text("#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n")
    assert await ident(folder, scenes=scenes) not in {base, *found}


async def test_everything_in_a_scene_changes_it(make_task: MakeTask, local: str) -> None:
    folder = make_task("t")
    one, two = Role("one", "nop"), Role("two", "nop")
    turns = [Turn("one"), Turn("two", "x")]
    scenes = [
        Scene([one, two], turns),
        Scene([dataclasses.replace(one, access="read"), two], turns),
        Scene([dataclasses.replace(one, oracle_access=True), two], turns),
        Scene([dataclasses.replace(one, reads_trajectory=["two"]), two], turns),
        Scene([dataclasses.replace(one, timeout=5), two], turns),
        Scene([one, two], [Turn("one", best_of=2), turns[1]]),
        Scene([one, two], turns, max_rounds=2),
        Scene([one, two], [Turn("one", again="y"), turns[1]], max_rounds=2),
        Scene([one, two], turns, max_rounds=2, stop_when="reward >= 1"),
        Scene([one, two], turns, max_rounds=2, stop_when="one says done"),
        Scene([one, two], turns, verify_rounds=True),
    ]
    found = [await ident(folder, scenes=[scene]) for scene in scenes]
    found.append(await ident(folder, scenes=scenes[:1], lockdown_paths=["/secret"]))
    assert len(set(found)) == len(scenes) + 1


async def test_what_does_not(make_task: MakeTask, tmp_path: Path, local: str) -> None:
    folder = make_task("t")
    base = await ident(folder)
    moved = tmp_path / "elsewhere" / "t"
    moved.parent.mkdir()
    folder.rename(moved)
    assert await ident(moved, jobs_dir=tmp_path, job_name="x", sandbox_setup_timeout=7, labels={"a": 1}) == base
    assert await ident(moved, keep_workspace=True) == base
    keys = [await ident(moved, agent_env={"API_KEY": value}) for value in ("one", "two")]
    assert keys[0] == keys[1] != base


async def test_the_version_of_an_agent_counts(make_task: MakeTask, local: str) -> None:
    found = await measure(RolloutConfig(task_path=make_task("t"), environment="local"))
    ((role, player),) = found.plan.players.items()
    specs = [player.spec.model_copy(update={"install": dataclasses_install(version)}) for version in ("1", "2")]
    plans = [dataclasses.replace(found.plan, players={role: dataclasses.replace(player, spec=spec)}) for spec in specs]
    assert len({measurement_id(found.config, plan, found.digest) for plan in plans}) == 2


def dataclasses_install(version: str) -> Any:
    from benchflow.agent.spec import Install

    return Install(npm=(f"some-agent@{version}.0.0",), node="22")


async def test_an_agents_own_file_counts_by_what_it_says(make_task: MakeTask, tmp_path: Path, local: str) -> None:
    folder, file = make_task("t"), tmp_path / "mine.toml"
    head = 'name = "mine"\n[launch]\ncommand = ["mine"]\n'
    found = []
    for more in ("", '[env]\nMODE = "fast"\n', '[env]\nMODE = "slow"\n', '[session]\npermission = "deny"\n'):
        file.write_text(head + more)
        found.append(await ident(folder, scenes=[Scene.single(str(file))]))
    assert len(set(found)) == 4
    file.write_text('description = "words"\n' + head)
    assert await ident(folder, scenes=[Scene.single(str(file))]) == found[0]
