"""Several roles in one sandbox, each claim about them tried from inside by whole rollouts of tiny agents."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import benchflow as bf
from benchflow.cli.app import app
from benchflow.errors import ConfigError
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.plan import make_plan
from benchflow.rollout.scene import Role, Scene, Turn
from benchflow.sandbox.base import FileData
from benchflow.sandbox.registry import backends_in_use
from benchflow.service.start import build_service_hooks

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.rollout.result import RolloutResult
    from benchflow.rollout.user import RoundResult

    from .conftest import MakeTask

SHELL = "python3 /opt/agents.py shell"
BACKENDS = [
    pytest.param("local", marks=pytest.mark.needs("local")),
    pytest.param("docker", marks=pytest.mark.needs("docker")),
]
LIST_APP = (
    "#!/bin/sh\nls -A /app /solution /logs 2>&1\n[ -f /app/done ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n"
)


def config(task: Path, *scenes: Scene, environment: str = "local", **settings: object) -> RolloutConfig:
    return RolloutConfig(
        task_path=task,
        scenes=scenes,
        environment=environment,
        jobs_dir=task.parent / "jobs",
        **settings,  # type: ignore[arg-type]
    )


def said(result: RolloutResult, actor: str | None = None) -> list[str]:
    """What was said, in turns: everything between two prompts together."""
    turns: list[str] = []
    for event in result.trajectory:
        if event["type"] == "prompt":
            turns.append("" if actor in (None, event.get("actor")) else "-")
        elif event["type"] == "message" and turns[-1] != "-":
            turns[-1] += str(event["text"])
    return [turn for turn in turns if turn != "-"]


def notes(result: RolloutResult, about: str) -> list[dict[str, Any]]:
    return [event["data"] for event in result.trajectory if event["type"] == "note" and event.get("about") == about]


def prompts(result: RolloutResult) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((result.rollout_dir / "prompts.json").read_text())
    return found


# -- who may do what -------------------------------------------------------------------------------------------------

CODER_BEGINS = r"""
$ id -un; umask; echo $N$HELPFUL; ls /tests /solution /logs/trajectories
$ (while :; do cat /solution/* /logs/trajectories/*/* >> /tmp/seen; sleep 0.02; done) >/dev/null 2>&1 &
$ (while :; do cat /app/.outbox/*; sleep 0.02; done) >/tmp/mail 2>/dev/null &
$ mkdir -p shared; echo mine > shared/file; echo 'exit 0' > shared/open; chmod 666 shared/open; touch "$HOME/private"
$ SECRET_OF_CODER=hidden sleep 600 >/dev/null 2>&1 &
$ printf '{"to": "reviewer", "content": "Look at shared/file."}' > /app/.outbox/reviewer.json
"""
REVIEWER_LOOKS = r"""
$ id -un; cat /app/shared/file; cat /solution/solve.sh
$ echo spoilt > /app/shared/file; touch /app/new; rm -f /app/shared/file
$ echo spoilt >> /app/shared/open; cat shared/open
$ ls /home/agent-coder; ls /tests; for p in /proc/[0-9]*; do tr '\0' '\n' < $p/environ | grep ^SECRET_OF; done
$ grep -c Look.at.shared /logs/trajectories/reviewer/coder.jsonl; touch /logs/trajectories/reviewer/x
$ printf '{"to": "coder", "content": "Rename it."}' > /app/.outbox/coder.json
"""
HELPER_EDITS = r"""
$ id -un; echo $HELPFUL; echo ours >> shared/file; mv shared/file shared/renamed
$ ls /solution; ls /logs/trajectories/reviewer; ls /home/agent-reviewer
$ printf '{"content": "Between us."}' > /app/.outbox/reviewer.json; sleep 0.3
"""
CODER_ENDS = r"""
$ echo $N; echo back >> shared/renamed; cat shared/renamed; touch done; ls -A .out*; cat /tmp/seen
$ cd .out*; echo own > own; until grep -q own /tmp/mail; do sleep 0.02; done; rm own; grep -c Between /tmp/mail
"""


@pytest.mark.parametrize("environment", BACKENDS)
async def test_roles_are_users_of_their_own(make_task: MakeTask, environment: str) -> None:
    async def plant(sandbox: bf.Sandbox) -> None:
        await sandbox.exec("mkdir -p /tests && echo expected > /tests/answer", user=0)

    scene = Scene(
        [
            Role("coder", SHELL),
            Role("reviewer", SHELL, access="read", oracle_access=True, reads_trajectory=["coder"]),
            Role("helper", SHELL, env={"HELPFUL": "yes"}),
        ],
        [
            Turn("coder", CODER_BEGINS),
            Turn("reviewer", REVIEWER_LOOKS),
            Turn("helper", HELPER_EDITS),
            Turn("coder", CODER_ENDS),
        ],
        "review",
    )
    task = make_task(files={"tests/test.sh": LIST_APP})
    result = await bf.run(config(task, scene, environment=environment, pre_agent_hooks=[plant]))
    assert result.error is None, result.error
    begins, looks, edits, ends = said(result)

    assert begins.startswith("agent-coder\n0002\n1\n")
    assert begins.count("Permission denied") + begins.count("No such file") == 3, begins

    assert looks.startswith("agent-reviewer\nmine\n#!/bin/sh\ntouch /app/done\n")
    denied = [line for line in looks.splitlines() if "Permission denied" in line]
    for what in ("shared/file", "/app/new", "shared/open", "agent-coder", "/tests", "environ", "reviewer/x"):
        assert any(what in line for line in denied), (what, looks)
    assert "hidden" not in looks
    assert "exit 0" in looks
    assert "\n2\n" in looks  # two events of the coder's speak of the file: its prompt and its tool call

    assert edits.startswith("agent-helper\nyes\n")
    assert edits.count("Permission denied") + edits.count("No such file") == 3, edits

    # It is the same process as in its first turn, and what it left running saw nothing of what the others could.
    assert ends == "2\nmine\nours\nback\n0\n"
    assert [data["content"] for data in notes(result, "message not delivered")] == ["Between us."]
    last = prompts(result)[-1]
    assert [(part["source"], part.get("role")) for part in last["parts"]] == [("message", "reviewer"), ("scene", None)]
    assert last["prompt"].startswith('<message from="reviewer"')
    assert "\nRename it.\n" in last["prompt"]
    assert last["prompt"].endswith(CODER_ENDS)

    scored = (result.rollout_dir / "verifier" / "test-stdout.txt").read_text()
    assert result.passed
    kept = json.loads((result.rollout_dir / "config.json").read_text())["scenes"][0]["roles"][1]
    assert (kept["access"], kept["oracle_access"], kept["reads_trajectory"]) == ("read", True, ["coder"])
    assert "outbox" not in scored
    assert "trajectories" not in scored
    assert re.search(r"/solution.*No such file", scored)


@pytest.mark.needs("local")
async def test_one_user_for_all_is_said_and_hides_no_solution(make_task: MakeTask) -> None:
    roles = [Role("a", SHELL), Role("b", SHELL)]
    turns = [Turn("a", '$ printf \'{"content": "hi"}\' > .outbox/b.json; id -un'), Turn("b", "$ id -un")]
    result = await bf.run(config(make_task(), Scene(roles, turns), sandbox_user=None))
    assert result.error is None, result.error
    assert said(result) == ["root\n", "root\n"]
    assert any("all roles run as one user" in note for note in result.notes)
    assert [part.get("role") for part in prompts(result)[-1]["parts"]] == ["a", None]
    told = [Role("a", SHELL, oracle_access=True), Role("b", SHELL)]
    async with backends_in_use():
        with pytest.raises(ConfigError, match="would show the solution to every role"):
            await make_plan(config(make_task(), Scene(told, turns), sandbox_user=None))


@pytest.mark.parametrize("environment", BACKENDS)
async def test_what_the_image_has_can_be_locked(make_task: MakeTask, environment: str) -> None:
    async def plant(sandbox: bf.Sandbox) -> None:
        await sandbox.exec("mkdir /tests /open && touch /tests/x /open/x /secret && chmod 777 /tests", user=0)

    scene = Scene.single(SHELL, prompts=["$ id -un; cat /tests/x; cat /secret; ls /open"])
    locked = {"pre_agent_hooks": [plant], "lockdown_paths": ["/tests", "/secret"]}
    result = await bf.run(config(make_task(), scene, environment=environment, **locked))
    assert result.error is None, result.error
    (answer,) = said(result)
    assert answer.startswith("agent\n")
    assert answer.count("Permission denied") == 2
    assert "x\n" in answer


@pytest.mark.parametrize("environment", BACKENDS)
async def test_the_oracle_among_agents_shows_them_nothing(make_task: MakeTask, environment: str) -> None:
    roles = [Role("solver", "oracle"), Role("watcher", SHELL)]
    spy = "$ (while :; do cat /solution/solve.sh >> /tmp/seen; done) >/dev/null 2>&1 &"
    turns = [Turn("watcher", spy), Turn("solver"), Turn("watcher", "$ cat /tmp/seen; ls /solution")]
    result = await bf.run(config(make_task(), Scene(roles, turns), environment=environment))
    assert result.error is None, result.error
    assert result.passed
    assert "touch" not in said(result)[-1]


# -- the outbox ------------------------------------------------------------------------------------------------------

HOSTILE = r"""
$ cd .outbox; printf 'just words' > coder.json; truncate -s 100M reviewer.json; ln -s /etc/passwd third.json
$ cd .outbox; mkfifo pipe.json; mkdir folder.json; printf '{"content": "x"}' > nobody.json
$ cd .outbox; printf '{"to": "coder", "content": "x"}' > helper.json
$ cd .outbox; printf 'x' > "$(printf 'new\nline')"; printf '{"content": "x"}' > victim.json; ln victim.json again.json
"""
VICTIM = r"""
$ printf '{"content": "x"}' > open.json; printf '{"content": "a draft"}' > closed.json; chmod 644 closed.json
"""
FORGER = r"""
$ printf '{"content": "forged"}' > open.json && mv open.json .outbox/coder.json
$ mv closed.json .outbox/squatter.json
$ printf '{"from": "victim", "content": "forged"}' > .outbox/victim.json
$ printf '[{"content": "one"}, {"to": "helper", "content": "two"}]' > .outbox/helper.json
$ printf '{"content": "open"}' > .outbox/forger.json; chmod 666 .outbox/forger.json
"""
SQUATTER = r"""
$ mv .outbox box; ln -s "$HOME" .outbox; printf '{"content": "x"}' > "$HOME/coder.json"
"""


@pytest.mark.parametrize("environment", BACKENDS)
async def test_a_hostile_outbox_harms_nobody(make_task: MakeTask, environment: str) -> None:
    roles = [Role(name, SHELL) for name in ("coder", "victim", "forger", "helper", "squatter")]
    turns = [
        Turn("coder", HOSTILE),
        Turn("victim", VICTIM),
        Turn("forger", FORGER),
        Turn("squatter", SQUATTER),
        Turn("helper", "$ ls -A .outbox; ls -A"),
        *(Turn(name, "Say it.") for name in ("coder", "forger", "victim")),
        Turn("helper", '$ printf \'{"content": "late"}\' > .outbox/coder.json; rm -rf box'),
    ]
    toml = '[environment]\nworkdir = "/srv/work"\n'
    test = "#!/bin/sh\nls -A /srv/work; echo 1 > /logs/verifier/reward.txt\n"
    task = make_task(toml, {"tests/test.sh": test})
    result = await bf.run(config(task, Scene(roles, turns), environment=environment))
    assert result.error is None, result.error
    assert result.passed
    refused = {(data["file"], data.get("from")): data["reason"] for data in notes(result, "message refused")}
    assert refused == {
        ("coder.json", "coder"): "it is not JSON",
        ("reviewer.json", "coder"): "it is longer than 100000 bytes",
        ("third.json", "coder"): "it is no regular file",
        ("pipe.json", "coder"): "it is no regular file",
        ("folder.json", "coder"): "it is no regular file",
        ("nobody.json", "coder"): "a file is named after whom it is for: coder.json, victim.json, forger.json, "
        "helper.json, squatter.json",
        ("helper.json", "coder"): "it is for 'coder', but the file is named after 'helper'",
        ("new\ufffdline", "coder"): "a file is named after whom it is for: coder.json, victim.json, forger.json, "
        "helper.json, squatter.json",
        ("victim.json", "coder"): "it has another name elsewhere",
        ("again.json", "coder"): "it has another name elsewhere",
        ("coder.json", "victim"): "it lay in the outbox of forger",
        ("squatter.json", "victim"): "it lay in the outbox of forger",
        ("victim.json", "forger"): "it says that it is from 'victim', which it is not",
        (
            "forger.json",
            "forger",
        ): "others could have written it; write it in the outbox itself, and open to nobody else",
        (".outbox", None): "the outbox itself was removed or replaced, or could not be read",
    }
    assert [(data["from"], data["content"]) for data in notes(result, "message")] == [
        ("forger", "one"),
        ("forger", "two"),
    ]
    assert [data["content"] for data in notes(result, "message not delivered")] == ["late"]
    by_role = {one["scene_role"]: one for one in prompts(result)}
    assert "forged" not in json.dumps(prompts(result)).replace(json.dumps(FORGER)[1:-1], "")
    assert by_role["coder"]["prompt"].count("was not delivered") == 10
    assert by_role["forger"]["prompt"].count("was not delivered") == 2
    assert by_role["victim"]["prompt"].count("was not delivered") == 2
    helped = next(one for one in prompts(result) if one["scene_role"] == "helper")
    assert [part["source"] for part in helped["parts"]][:2] == ["message", "message"]
    assert (result.rollout_dir / "verifier" / "test-stdout.txt").read_text().strip() == ""


@pytest.mark.parametrize("environment", BACKENDS)
async def test_an_outbox_that_is_swapped_all_the_time_harms_nothing(make_task: MakeTask, environment: str) -> None:
    look = "find / -xdev -perm -2 ! -type l ! -path '/app/*' ! -path '/tmp*' ! -path '/proc/*' ! -path '/dev/*' | sort"

    seen: list[str] = []

    async def before(sandbox: bf.Sandbox) -> None:
        seen.append((await sandbox.exec(look, user=0)).text)

    swap = "$ (while :; do mv .outbox o; ln -s /etc .outbox; rm -rf o .outbox; done) >/dev/null 2>&1 &"
    scene = Scene(
        [Role("coder", SHELL), Role("reviewer", SHELL, access="read")],
        [Turn("coder", swap), *[Turn("reviewer", "$ touch x"), Turn("coder", f"$ {look}")] * 3],
    )
    result = await bf.run(config(make_task(), scene, environment=environment, pre_agent_hooks=[before]))
    assert result.error is None, result.error
    reasons = {data["reason"] for data in notes(result, "message refused")}
    assert reasons <= {"the outbox itself was removed or replaced, or could not be read"}
    assert [line for line in said(result)[-1].splitlines() if line.startswith("/")] == seen[0].splitlines()


# -- scenes and rounds -----------------------------------------------------------------------------------------------

PLANT = (
    "$ echo kept > file; (trap '' TERM HUP INT; exec setsid sleep 86123) >/dev/null 2>&1 & "
    "until grep -qzx 86123 /proc/$!/cmdline; do sleep 0.02; done"
)
ASK = """python3 -c "print(__import__('urllib.request').request.urlopen('http://127.0.0.1:9001/').read().decode())\""""
LOOK = f"$ cat file; echo $N; grep -lzx '8612[3]' /proc/[0-9]*/cmdline | wc -l; {ASK}"
SERVICE = b"""#!/usr/bin/python3
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"served")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


@pytest.mark.parametrize("environment", BACKENDS)
async def test_between_scenes_every_process_is_gone(make_task: MakeTask, environment: str) -> None:
    async def install(sandbox: bf.Sandbox) -> None:
        await sandbox.put({"claw-gmail": FileData(SERVICE, 0o755)}, "/usr/local/bin")

    scenes = [
        Scene(
            [Role("one", SHELL), Role("two", SHELL)], [Turn("one", PLANT), Turn("two", PLANT), Turn("one", LOOK)], "a"
        ),
        Scene([Role("one", SHELL)], [Turn("one", LOOK)], "b", max_rounds=2),
    ]
    test = f"#!/bin/sh\n[ $({ASK}) = served ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n"
    hooks = [install, *build_service_hooks(["gmail"])]
    task = make_task(files={"tests/test.sh": test})
    result = await bf.run(config(task, *scenes, environment=environment, pre_agent_hooks=hooks))
    assert result.error is None, result.error
    *_, within, after, again = said(result)
    assert within.split() == ["kept", "2", "2", "served"]
    assert after.split() == ["kept", "1", "0", "served"], "all are gone but what the task gave, and no memory is left"
    assert again.split() == ["kept", "2", "0", "served"], "rounds go on in the scene's sessions, to their number"
    assert result.passed, "the fork that is scored has the service, too"


@pytest.mark.parametrize("environment", BACKENDS)
async def test_a_role_ends_the_scene(make_task: MakeTask, environment: str) -> None:
    done = '$ [ $N -lt 2 ] || printf \'{"to": "scene", "content": "done"}\' > .outbox/scene.json'
    scene = Scene(
        [Role("coder", SHELL), Role("reviewer", SHELL, access="read")],
        [Turn("coder", "$ echo $N >> log", again="$ echo again $N >> log; touch done"), Turn("reviewer", done)],
        max_rounds=5,
        stop_when="reviewer says done",
    )
    result = await bf.run(config(make_task(), scene, environment=environment))
    assert result.error is None, result.error
    assert [one["scene_role"] for one in prompts(result)] == ["coder", "reviewer"] * 2
    assert notes(result, "scene over") == [
        {"scene": "main", "round": 2, "of": 5, "reason": "a role said it is done"},
    ]
    assert result.passed


@pytest.mark.parametrize("environment", BACKENDS)
async def test_rounds_are_scored_until_it_is_enough(make_task: MakeTask, environment: str) -> None:
    asked: list[tuple[int, float | None, int]] = []

    def watch(found: RoundResult) -> bool:
        asked.append((found.round, found.reward, found.n_tool_calls))
        return False

    turn = Turn("solver", "$ [ $N -lt 3 ] || touch done")
    scene = Scene([Role("solver", SHELL)], [turn], max_rounds=5, stop_when=["reward >= 1.0", watch])
    result = await bf.run(config(make_task(), scene, environment=environment))
    assert result.error is None, result.error
    assert [(one["scene"], one["round"], one["reward"]) for one in result.rounds] == [
        ("main", 0, 0.0),
        ("main", 1, 0.0),
        ("main", 2, 1.0),
    ]
    assert asked == [(0, 0.0, 1), (1, 0.0, 1)]
    assert result.passed
    assert notes(result, "scene over")[0]["reason"] == "stop_when is true"


@pytest.mark.parametrize("environment", BACKENDS)
async def test_a_roles_own_time(make_task: MakeTask, environment: str) -> None:
    slow = Role("slow", "python3 /opt/agents.py hanging polite", timeout=0.2)
    scene = Scene(
        [slow, Role("other", SHELL)], [Turn("other", "$ touch done"), Turn("slow"), Turn("other", "$ rm done")]
    )
    result = await bf.run(config(make_task(), scene, environment=environment))
    assert result.error is not None
    assert (result.error.kind, result.reward) == ("AgentTimeout", 1.0)


@pytest.mark.needs("local")
async def test_phase_by_phase_roles_still_write_to_each_other(make_task: MakeTask) -> None:
    scene = Scene([Role("a", SHELL), Role("b", SHELL)], [Turn("a"), Turn("b")])
    async with backends_in_use():
        rollout = await bf.Rollout.create(config(make_task(), scene))
        await rollout.setup()
        try:
            await rollout.start()
            await rollout.install_agent()
            await rollout.connect_as("a")
            await rollout.execute(['$ printf \'{"content": "hello"}\' > .outbox/b.json'])
            await rollout.connect_as("b")
            await rollout.execute(["Answer."])
            left = await rollout.sandbox.exec("ls -A /app /var/lib/benchflow")
        finally:
            await rollout.cleanup()
    heard = [str(event["text"]) for event in rollout.record.events() if event["type"] == "prompt"]
    assert heard[-1].startswith('<message from="a"')
    assert "hello" in heard[-1]
    assert "outbox" not in left.text


# -- before anything starts ------------------------------------------------------------------------------------------

YAML = """
task_path: {task}
environment: local
scenes:
  - name: review
    max_rounds: 4
    stop_when: reviewer says done
    roles:
      - {{name: coder, agent: {shell}}}
      - {{name: reviewer, agent: nop, access: read}}
    turns:
      - {{role: coder}}
      - {{role: reviewer, prompt: Look at it.}}
"""


@pytest.mark.needs("local")
def test_steps_are_printed_and_mistakes_are_all_said(make_task: MakeTask, tmp_path: Path) -> None:
    file = tmp_path / "review.yaml"
    good = YAML.format(task=make_task(), shell=SHELL)
    file.write_text(good)
    words = ["eval", "create", "--config", str(file), "--dry-run"]
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, words)
    assert shown.exit_code == 0, shown.output
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert [row[1:3] for row in rows if len(row) > 2 and row[1] == "review"] == [
        ["review", "coder"],
        ["review", "reviewer"],
    ]
    assert "scene review: up to 4 rounds, until reviewer says done" in shown.stdout
    assert not (tmp_path / "jobs").exists()

    file.write_text(
        good.replace("role: coder", "role: codr").replace("reviewer says", "boss says").replace("nop", "nobody")
    )
    refused = CliRunner(env={"COLUMNS": "200"}).invoke(app, words)
    assert refused.exit_code == 1
    for problem in ("a turn names the role 'codr'", "waits for 'boss', who has no turn", "nobody"):
        assert problem in str(refused.exception)
