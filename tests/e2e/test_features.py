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

from .conftest import DOCKERFILE

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import MakeTask

pytestmark = pytest.mark.needs("local")

REWARD = "echo $r > /logs/verifier/reward.txt\n"
ECHO = "python3 /opt/agents.py echo"
TOLD = "python3 /opt/agents.py echo {model}"


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


@pytest.mark.parametrize("user", [None, "root"])
async def test_root_is_root_whoever_the_images_user_is_and_it_is_said(make_task: MakeTask, user: str | None) -> None:
    task = make_task(files={"environment/Dockerfile": f"{DOCKERFILE}USER nobody\n"})
    scene = Scene.single("python3 /opt/agents.py shell", prompts=["$ touch ~/mine && id -u > /app/done"])
    result = await bf.run(config(task, scene, sandbox_user=user))
    assert result.error is None, result.error
    assert result.passed
    written = json.loads((result.rollout_dir / "result.json").read_text())
    assert written["sandbox_user"] is None


async def test_scripts_run_as_another_user_whatever_their_modes_are(make_task: MakeTask) -> None:
    """solve.sh as the image's user, test.sh as the verifier's: neither could change the mode of what is root's."""
    dockerfile = f"{DOCKERFILE}RUN chown nobody /app\nUSER nobody\n"
    tests = (
        '#!/bin/sh\n[ "$(id -un) $(stat -c %U /app/done)" = "nobody nobody" ] && r=1 || r=0\n'
        "echo $r > /logs/verifier/reward.txt\n"
    )
    task = make_task('[verifier]\nuser = "nobody"\n', {"environment/Dockerfile": dockerfile, "tests/test.sh": tests})
    for script in ("solution/solve.sh", "tests/test.sh"):
        (task / script).chmod(0o600)
    result = await bf.run(config(task))
    assert result.error is None, result.error
    assert result.passed, (result.rollout_dir / "agent" / "oracle.txt").read_text()


async def test_each_phase_has_its_own_network_and_the_report_of_the_tests_is_kept(make_task: MakeTask) -> None:
    links = "grep -c : /proc/net/dev"
    files = {
        "solution/solve.sh": f"#!/bin/sh\n{links} > /app/done\n",
        "tests/test.sh": (
            f'#!/bin/sh\n[ "$(cat /app/done)" = 1 ] && [ "$({links})" -gt 1 ] && r=1 || r=0\n{REWARD}'
            "echo '{\"results\": {}}' > /logs/verifier/ctrf.json\n"
        ),
    }
    result = await bf.run(config(make_task('[agent]\nnetwork_mode = "no-network"\n', files)))
    assert result.error is None, result.error
    assert result.passed, "the agent's loopback is alone, the verifier's is not"
    assert json.loads((result.rollout_dir / "verifier" / "ctrf.json").read_text()) == {"results": {}}


async def test_a_model_is_chosen_the_way_a_command_offers_or_the_result_says_that_it_was_not(
    make_task: MakeTask,
) -> None:
    task = make_task()
    chosen = await bf.run(config(task, Scene.single("python3 /opt/agents.py choosing", "someone/big")))
    assert chosen.error is None, chosen.error
    assert [event["text"] for event in chosen.trajectory if event["type"] == "message"] == [
        '{"model": "big", "mode": "ask"}'
    ]
    assert chosen.notes == []
    for agent, notes in ((ECHO, ["python3 was not told of the model big: it offers no choice of one"]), (TOLD, [])):
        result = await bf.run(config(task, Scene.single(agent, "someone/big")))
        assert result.error is None, result.error
        assert result.notes == notes


async def test_an_agents_file_says_how_permission_is_answered(make_task: MakeTask, tmp_path: Path) -> None:
    own = tmp_path / "asking.toml"
    own.write_text(
        'name = "asking"\n[launch]\ncommand = ["python3", "/opt/agents.py", "asking"]\n[session]\npermission = "deny"\n'
    )
    result = await bf.run(config(make_task(), Scene.single(str(own))))
    assert result.error is None, result.error
    assert [event["option_id"] for event in result.trajectory if event["type"] == "permission"] == ["n"]


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


async def test_a_variable_that_only_the_verifier_needs_is_missed_before_anything_starts(make_task: MakeTask) -> None:
    task = make_task('[verifier.env]\nA = "${NOT_SET_1}"\n[solution.env]\nB = "${NOT_SET_2}"\n')
    with pytest.raises(ConfigError, match=r"NOT_SET_1 \(for verifier.env.A\), NOT_SET_2 \(for solution.env.B\)"):
        await bf.run(config(task))
    assert not (task.parent / "jobs").exists()


async def test_set_up_commands_have_their_variables(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ON_THE_HOST", "there")
    toml = (
        '[[sandbox.setup_commands]]\ncommand = "echo $A $B > /app/done"\nenv = { A = "here", B = "${ON_THE_HOST}" }\n'
    )
    test = f"#!/bin/sh\n[ \"$(cat /app/done)\" = 'here there' ] && r=1 || r=0\n{REWARD}"
    result = await bf.run(config(make_task(toml, {"tests/test.sh": test}), Scene.single("nop")))
    assert (result.rewards, result.error) == ({"reward": 1.0}, None)


SERVERS = """
[[environment.mcp_servers]]
name = "docs"
url = "http://old"
[[environment.mcp_servers]]
name = "shell"
transport = "stdio"
command = "serve"
args = ["--now"]
env = { A = "${MCP_TOKEN}" }
[[environment.mcp_servers]]
name = "docs"
transport = "http"
url = "http://new"
headers = { Authorization = "Bearer ${MCP_TOKEN}" }
"""
TELL = """
import json, sys
REPLIES = {
    "initialize": {"protocolVersion": 1},
    "session/new": {"sessionId": "s"},
    "session/prompt": {"stopReason": "end_turn"},
}
for line in sys.stdin:
    said = json.loads(line)
    if said.get("method") == "session/new":
        with open("/app/servers.json", "w") as file:
            json.dump(said["params"]["mcpServers"], file)
    if "id" in said:
        reply = {"jsonrpc": "2.0", "id": said["id"], "result": REPLIES.get(said.get("method"), {})}
        print(json.dumps(reply), flush=True)
"""


async def test_an_agent_is_told_of_the_tasks_mcp_servers(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TOKEN", "t1")
    files = {
        "environment/tell.py": TELL,
        "environment/Dockerfile": f"{DOCKERFILE}COPY tell.py /opt/tell.py\n",
        "tests/test.sh": f"#!/bin/sh\ncp /app/servers.json /logs/verifier/\nr=1\n{REWARD}",
    }
    result = await bf.run(config(make_task(SERVERS, files), Scene.single("python3 /opt/tell.py")))
    assert result.error is None, result.error
    assert json.loads((result.rollout_dir / "verifier" / "servers.json").read_text()) == [
        {
            "type": "http",
            "name": "docs",
            "url": "http://new",
            "headers": [{"name": "Authorization", "value": "Bearer t1"}],
        },
        {"name": "shell", "command": "serve", "args": ["--now"], "env": [{"name": "A", "value": "t1"}]},
    ]
