"""What a task or a config may ask for, each shown by a whole rollout."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import benchflow as bf
from benchflow.errors import ConfigError
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.lifecycle import Rollout
from benchflow.rollout.scene import Role, Scene, Turn
from benchflow.sandbox.registry import backends_in_use

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import MakeTask

pytestmark = pytest.mark.needs("local")

REWARD = "echo $r > /logs/verifier/reward.txt\n"
ECHO = "python3 /opt/agents.py echo"


def config(task: Path, *scenes: Scene, **settings: object) -> RolloutConfig:
    return RolloutConfig(
        task_path=task,
        scenes=scenes or [Scene.single("oracle")],
        environment="local",
        jobs_dir=task.parent / "jobs",
        **settings,  # type: ignore[arg-type]
    )


async def test_phases_can_be_called_one_by_one(make_task: MakeTask) -> None:
    async with backends_in_use():
        rollout = await Rollout.create(config(make_task(), Scene.single(ECHO)))
        await rollout.setup()
        try:
            await rollout.start()
            await rollout.install_agent()
            await rollout.connect()
            await rollout.execute(prompts=["custom prompt", None])
            between = await rollout.soft_verify()
            await rollout.sandbox.exec("touch /app/done", user="agent")
            await rollout.disconnect()
            final = await rollout.verify()
        finally:
            await rollout.cleanup()
    assert (between.rewards, final.rewards) == ({"reward": 0.0}, {"reward": 1.0})
    texts = [event["text"] for event in rollout.record.events() if event["type"] == "prompt"]
    assert texts == ["custom prompt", "Create /app/done.\n"]


async def test_phases_have_an_order(make_task: MakeTask) -> None:
    rollout = Rollout(config(make_task()))
    with pytest.raises(ConfigError, match=r"setup\(\) first"):
        await rollout.start()


async def test_the_agents_user_is_not_root_and_owns_the_workspace(make_task: MakeTask) -> None:
    seen: list[str] = []

    async def look(sandbox: bf.Sandbox) -> None:
        seen.append(sandbox.workdir)

    tests = (
        '#!/bin/sh\n[ "$(stat -c %U /app)" = agent ] && [ "$(id -u)" = 0 ] && [ ! -e "$HOME/x" ]'
        " && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n"
    )
    result = await bf.run(config(make_task(files={"tests/test.sh": tests}), Scene.single(ECHO), pre_agent_hooks=[look]))
    assert result.error is None, result.error
    assert result.passed
    assert result.sandbox_user == "agent"
    assert seen == ["/app"]


async def test_root_is_said(make_task: MakeTask) -> None:
    result = await bf.run(config(make_task(), Scene.single(ECHO), sandbox_user=None))
    assert result.error is None, result.error
    written = json.loads((result.rollout_dir / "result.json").read_text())
    assert written["sandbox_user"] is None


async def test_scenes_share_files_and_nothing_else(make_task: MakeTask) -> None:
    scenes = [
        Scene([Role("one", ECHO)], [Turn("one", "first"), Turn("one", "second")], "a"),
        Scene([Role("two", ECHO)], [Turn("two")], "b"),
    ]
    result = await bf.run(config(make_task(), *scenes))
    assert result.error is None, result.error
    said = [event["text"] for event in result.trajectory if event["type"] == "message"]
    # The echo agent numbers the prompts of its own process: the second scene starts anew.
    assert [str(text).split(":")[0] for text in said] == ["1", "2", "1"], said


async def test_steps_are_gated_and_averaged(make_task: MakeTask) -> None:
    toml = '[[steps]]\nname = "one"\nmin_reward = 0.5\n[[steps]]\nname = "two"\n[[steps]]\nname = "three"\n'
    files = {
        f"steps/{name}/{part}": text
        for name in ("one", "two", "three")
        for part, text in {
            "instruction.md": f"do {name}",
            "solution/solve.sh": f"#!/bin/sh\necho {name} >> /app/steps\n",
            "tests/test.sh": f"#!/bin/sh\ngrep -qx {name} /app/steps && r=1 || r=0\n{REWARD}",
        }.items()
    }
    files["steps/two/workdir/given.txt"] = "given"
    files["steps/two/workdir/setup.sh"] = "cp given.txt taken.txt\n"
    files["steps/two/tests/test.sh"] = (
        '#!/bin/sh\n[ "$(cat /app/taken.txt)" = given ] && echo 0.5 > /logs/verifier/reward.txt\n'
    )
    task = make_task(toml, files)
    result = await bf.run(config(task))
    assert result.error is None, result.error
    assert result.reward == pytest.approx(2.5 / 3)
    assert [step["name"] for step in result.steps] == ["one", "two", "three"]
    assert (result.rollout_dir / "steps" / "two" / "verifier" / "reward.txt").exists()
    nothing = await bf.run(config(task, Scene.single("nop")))
    assert nothing.rewards == {"reward": 0.0}
    assert len(nothing.steps) == 1
    assert any("min_reward" in note for note in nothing.notes)


async def test_artifacts_hooks_and_a_separate_verifier(make_task: MakeTask) -> None:
    toml = """
artifacts = ["/app/out", {source = "/app/log.txt", destination = "logs/app.log"}, "/nowhere"]
[verifier]
environment_mode = "separate"
[[verifier.collect]]
command = "mkdir -p /app/out && echo hooked > /app/out/hook.txt"
[[verifier.collect]]
command = "exit 3"
"""
    files = {
        "solution/solve.sh": "#!/bin/sh\necho logged > /app/log.txt\ntouch /app/not-an-artifact\n",
        "tests/test.sh": (
            "#!/bin/sh\n[ -f /app/out/hook.txt ] && [ -f /app/log.txt ] && [ ! -e /app/not-an-artifact ]"
            f" && r=1 || r=0\n{REWARD}"
        ),
    }
    result = await bf.run(config(make_task(toml, files)))
    assert result.error is None, result.error
    assert result.passed
    assert result.verify_level == "fresh"
    assert (result.rollout_dir / "artifacts" / "logs" / "app.log").read_text() == "logged\n"
    manifest = json.loads((result.rollout_dir / "artifacts" / "manifest.json").read_text())
    assert {row["source"]: row["status"] for row in manifest} == {
        "/logs/artifacts": "empty",
        "/app/out": "ok",
        "/app/log.txt": "ok",
        "/nowhere": "failed",
    }
    assert any("exited 3" in note for note in result.notes)


async def test_the_verifier_leaves_no_trace_between_rounds(make_task: MakeTask) -> None:
    listing = (
        "find / -xdev -path /proc -prune -o -newermt @0 -printf '%p %T@ %s\\n' 2>/dev/null | sort | md5sum; ls /proc"
    )
    async with backends_in_use():
        rollout = Rollout(config(make_task(), Scene.single("nop")))
        await rollout.setup()
        try:
            await rollout.start()
            await rollout.install_agent()
            before = await rollout.sandbox.exec(listing)
            await rollout.soft_verify()
            after = await rollout.sandbox.exec(listing)
        finally:
            await rollout.cleanup()
    assert before.text.splitlines()[0] == after.text.splitlines()[0]
