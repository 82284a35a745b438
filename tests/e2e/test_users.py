"""Users in Python: what they are told, what the agent sees of it and what is kept, each shown by a whole rollout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import benchflow as bf
from benchflow.cli.app import app
from benchflow.errors import ConfigError
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.lifecycle import Rollout
from benchflow.rollout.scene import Role, Scene, Turn
from benchflow.rollout.user import BaseUser, FunctionUser, PassthroughUser, RoundResult
from benchflow.sandbox.registry import backends_in_use
from benchflow.testing.model_server import ModelServer, Run, Say, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .conftest import MakeTask

SHELL = "python3 /opt/agents.py shell"
ON = [
    pytest.param("local", marks=pytest.mark.needs("local")),
    pytest.param("docker", marks=pytest.mark.needs("docker")),
]
TEST = """#!/bin/sh
echo "checking $(ls /app | tr '\\n' ' ')"
[ "$(cat /app/answer 2>/dev/null)" = 42 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
"""
SOLUTION = "#!/bin/sh\necho 42 > /app/answer # known-only-to-the-oracle\n"
FILES = {"tests/test.sh": TEST, "solution/solve.sh": SOLUTION}
LISTING = "find / -xdev -path /proc -prune -o -printf '%p %i %m %u %s %T@ %C@\\n' 2>/dev/null | sort"


def config(task: Path, user: BaseUser | None, backend: str = "local", **settings: object) -> RolloutConfig:
    return RolloutConfig(
        task_path=task,
        scenes=[Scene.single(SHELL)],
        environment=backend,
        jobs_dir=task.parent / "jobs",
        user=user,
        **settings,  # type: ignore[arg-type]
    )


class Script(BaseUser):
    """Says the prompts one after the other, and keeps what it is told."""

    def __init__(self, *prompts: str) -> None:
        self.prompts = prompts
        self.began: list[tuple[str, str | None]] = []
        self.told: list[RoundResult | None] = []

    async def setup(self, instruction: str, solution: str | None = None) -> None:
        self.began.append((instruction, solution))

    async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:  # noqa: A002
        self.told.append(round_result)
        return self.prompts[round] if round < len(self.prompts) else None


@pytest.mark.parametrize("backend", ON)
async def test_a_user_sees_each_round_and_the_agent_keeps_its_session(make_task: MakeTask, backend: str) -> None:
    user = Script("$ echo 41 > /app/answer; echo prompt $N", "$ echo 42 > /app/answer; echo prompt $N")
    result = await bf.run(config(make_task(files=FILES), user, backend))
    assert result.error is None, result.error
    assert result.rewards == {"reward": 1.0}
    assert user.began == [("Create /app/done.\n", None)]
    first, one, two = user.told
    assert first is None
    assert one is not None
    assert two is not None
    assert (one.round, one.rewards, one.n_tool_calls, one.verifier_error) == (0, {"reward": 0.0}, 1, None)
    assert (two.round, two.rewards, two.n_tool_calls) == (1, {"reward": 1.0}, 1)
    assert one.verifier_output == "checking answer \n"
    assert said(one) == ["prompt 1\n"]
    assert said(two) == ["prompt 2\n"], "the second round is in the same session, and holds its own events alone"
    # The check between rounds is the final check, byte for byte.
    folder = result.rollout_dir
    assert tree(folder / "rounds" / "1" / "verifier") == tree(folder / "verifier")
    written = json.loads((folder / "result.json").read_text())
    assert [(kept["round"], kept["reward"]) for kept in written["rounds"]] == [(0, 0.0), (1, 1.0)]
    prompts = json.loads((folder / "prompts.json").read_text())
    assert [prompt["source"] for prompt in prompts] == ["user", "user"]


def said(found: RoundResult) -> list[object]:
    return [event["text"] for event in found.trajectory if event["type"] == "message"]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("backend", ON)
async def test_the_agent_finds_no_trace_of_a_verification(make_task: MakeTask, backend: str) -> None:
    task = make_task(files=FILES)
    async with backends_in_use():
        rollout = Rollout(config(task, None, backend))
        await rollout.setup()
        try:
            await rollout.start()
            await rollout.install_agent()
            await rollout.connect()
            await rollout.execute(["$ echo 42 > /app/answer; mkfifo /app/pipe; (exec sleep 600 > /dev/null 2>&1) &"])
            before = await look(rollout)
            soft = await rollout.soft_verify()
            after = await look(rollout)
            await rollout.disconnect()
            final = await rollout.verify()
        finally:
            await rollout.cleanup()
    assert soft.rewards == final.rewards == {"reward": 1.0}
    assert any("/app/answer" in line for line in before[0])
    assert after[0] == before[0], "no file, no time, no owner has changed"
    assert any("sleep" in line for line in before[1])
    assert after[1] == before[1], "no process came or went"


async def look(rollout: Rollout) -> tuple[list[str], list[str]]:
    files = await rollout.sandbox.exec(LISTING, output_limit=64 * 1024 * 1024)
    assert files.dropped == 0
    found = await rollout.sandbox.exec(
        "for p in /proc/[0-9]*; do case $p in /proc/$$|/proc/$PPID) ;; *) echo $p $(cat $p/cmdline);; esac; done"
    )
    # What has no command line has ended already, and only waits to be forgotten.
    living = [line for line in found.text.splitlines() if "for p in" not in line and " " in line]
    return files.text.splitlines(), living


@pytest.mark.parametrize("backend", ON)
async def test_oracle_access_is_the_users_alone(make_task: MakeTask, backend: str) -> None:
    hunt = "$ grep -rsl known-only-to-the-oracle / --exclude-dir=proc --exclude-dir=sys; cat /solution/solve.sh"
    environ = "$ env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'"
    user = Script(hunt, environ)
    result = await bf.run(config(make_task(files=FILES), user, backend, oracle_access=True))
    assert result.error is None, result.error
    assert user.began == [("Create /app/done.\n", SOLUTION)]
    outputs = [str(event.get("output")) for event in result.trajectory if event["type"] == "tool_call_update"]
    assert len(outputs) == 2
    assert "/solution/solve.sh: No such file" in outputs[0]
    assert not [line for line in outputs[0].splitlines() if line.startswith("/")], "a file holds the solution"
    assert "echo 42" not in outputs[1]


@pytest.mark.needs("local")
async def test_plain_and_async_functions(make_task: MakeTask) -> None:
    def plain(round: int, instruction: str, round_result: RoundResult | None) -> str | None:  # noqa: A002
        del instruction, round_result
        return "$ true" if round == 0 else None

    async def waiting(round: int, instruction: str, round_result: RoundResult | None) -> str | None:  # noqa: A002
        del round, instruction
        return None if round_result and round_result.passed else "$ echo 42 > /app/answer"

    task = make_task(files=FILES)
    assert [len((await bf.run(config(task, FunctionUser(fn)))).rounds) for fn in (plain, waiting)] == [1, 1]
    passed_on = await bf.run(config(task, PassthroughUser()))
    assert [kept["prompt"] for kept in passed_on.rounds] == ["Create /app/done.\n"]


@pytest.mark.needs("local")
async def test_rounds_end_at_their_number(make_task: MakeTask) -> None:
    user = FunctionUser(lambda *_: "$ true")
    assert len((await bf.run(config(make_task(), user, max_user_rounds=2))).rounds) == 2


@pytest.mark.needs("local")
async def test_a_user_that_fails_is_an_error_and_the_score_stands(make_task: MakeTask) -> None:
    def fail(round: int, instruction: str, round_result: RoundResult | None) -> str | None:  # noqa: A002
        del instruction, round_result
        if round:
            raise LookupError("no more ideas")
        return "$ echo 42 > /app/answer"

    result = await bf.run(config(make_task(files=FILES), FunctionUser(fail)))
    assert result.error is not None
    assert (result.error.kind, result.error.boundary, result.error.phase) == ("UserError", "config", "user")
    assert "run() in round 1: LookupError: no more ideas" in result.error.message
    assert result.passed
    assert json.loads((result.rollout_dir / "result.json").read_text())["error"]["kind"] == "UserError"


@pytest.mark.needs("local")
async def test_a_verifier_that_cannot_score_is_told(make_task: MakeTask) -> None:
    user = Script("$ true", "$ touch /app/scored")
    tests = "#!/bin/sh\necho looked\n[ -e /app/scored ] && echo 1 > /logs/verifier/reward.txt\n"
    result = await bf.run(config(make_task(files={"tests/test.sh": tests}), user))
    assert result.error is None, result.error
    one = user.told[1]
    assert one is not None
    assert one.rewards is None
    assert one.verifier_error is not None
    assert "wrote neither" in one.verifier_error
    assert one.verifier_output == "looked\n"
    assert [kept["reward"] for kept in result.rounds] == [None, 1.0]


@pytest.mark.needs("local")
async def test_time_between_rounds_is_not_the_agents(make_task: MakeTask) -> None:
    toml = "[agent]\ntimeout_sec = 5\n"
    tests = "#!/bin/sh\nsleep 3\necho 1 > /logs/verifier/reward.txt\n"
    result = await bf.run(config(make_task(toml, {"tests/test.sh": tests}), Script("$ true", "$ true")))
    assert result.error is None, result.error
    assert len(result.rounds) == 2


@pytest.mark.needs("local")
async def test_every_step_has_its_own_rounds(make_task: MakeTask) -> None:
    files = {
        f"steps/{name}/{part}": text
        for name in ("one", "two")
        for part, text in {
            "instruction.md": f"do {name}",
            "solution/solve.sh": f"solve {name}",
            "tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n",
        }.items()
    }
    user = Script("$ true")
    task = make_task('[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n', files)
    result = await bf.run(config(task, user, oracle_access=True))
    assert result.error is None, result.error
    assert user.began == [("do one", "solve one"), ("do two", "solve two")]
    assert [(kept["step"], kept["round"]) for kept in result.rounds] == [("one", 0), ("two", 0)]


@pytest.mark.needs("local")
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"scenes": [Scene([Role("a", SHELL), Role("b", SHELL)], [Turn("a"), Turn("b")])]}, "1 scenes with 2 roles"),
        ({"scenes": [Scene.single(SHELL, prompts=[None, "more"])]}, "give the scene one turn"),
        ({"scenes": [Scene([Role("a", SHELL)], [Turn("a")], max_rounds=2)]}, "no rounds of its own"),
        ({"max_user_rounds": 0}, "max_user_rounds is 0"),
        ({"user": print}, "given as FunctionUser"),
        ({"loop": "verify-retry:2"}, "exclude each other"),
        ({"loop": "self-revue"}, "did you mean 'self-review'"),
        ({"loop": "self-review:no"}, "does not say how often"),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_starts(
    make_task: MakeTask, settings: dict[str, object], says: str
) -> None:
    asked = config(make_task(), PassthroughUser())
    for name, value in settings.items():
        setattr(asked, name, value)
    with pytest.raises(ConfigError, match=says):
        await bf.run(asked)
    assert not asked.jobs_dir.exists()


@pytest.mark.needs("local")
async def test_a_solution_that_is_not_there_is_said_beforehand(make_task: MakeTask) -> None:
    task = make_task()
    (task / "solution" / "solve.sh").unlink()
    with pytest.raises(ConfigError, match="no solution to tell"):
        await bf.run(config(task, PassthroughUser(), oracle_access=True))


def prompts_of(result: bf.RolloutResult) -> Sequence[str]:
    return [str(event["text"]) for event in result.trajectory if event["type"] == "prompt"]


@pytest.mark.parametrize("backend", ON)
async def test_self_review_asks_again_in_the_same_session(make_task: MakeTask, backend: str) -> None:
    result = await bf.run(config(make_task(), None, backend, loop="self-review:2"))
    assert result.error is None, result.error
    first, *reviews = prompts_of(result)
    assert first == "Create /app/done.\n"
    assert len(reviews) == 2
    assert all("Review your solution" in review for review in reviews)


@pytest.mark.parametrize("backend", ON)
async def test_verify_retry_shows_what_the_verifier_said_until_it_passes(make_task: MakeTask, backend: str) -> None:
    # The verifier says what would pass, and the agent does what it reads.
    tests = '#!/bin/sh\n[ "$(cat /app/n)" = 2 ] && r=1 || r=0\n'
    tests += "echo '$ echo x >> /app/log; wc -l < /app/log > /app/n'\necho $r > /logs/verifier/reward.txt\n"
    result = await bf.run(config(make_task(files={"tests/test.sh": tests}), None, backend, loop="verify-retry:4"))
    assert result.error is None, result.error
    assert [kept["reward"] for kept in result.rounds] == [0.0, 0.0, 1.0]
    assert "does not pass yet" in prompts_of(result)[1]


@pytest.mark.needs("local")
def test_a_loop_on_the_command_line(make_task: MakeTask, tmp_path: Path) -> None:
    task = make_task(files={"tests/test.sh": "#!/bin/sh\necho 0 > /logs/verifier/reward.txt\n"})
    command = ["eval", "create", "-t", str(task), "-a", "nop", "-e", "local", "--jobs-dir", str(tmp_path / "out")]
    ran = CliRunner().invoke(app, [*command, "--job-name", "one", "--loop", "verify-retry:1", "--json"])
    assert ran.exit_code == 0, ran.output
    (rollout,) = json.loads(ran.stdout)["rollouts"]
    written = json.loads((Path(rollout["rollout_dir"]) / "result.json").read_text())
    assert [found["reward"] for found in written["rounds"]] == [0.0, 0.0]
    wrong = CliRunner().invoke(app, [*command, "--loop", "verify-retyr:1"])
    assert wrong.exit_code == 1
    assert "did you mean 'verify-retry'?" in str(wrong.exception)


@pytest.mark.parametrize("backend", ON)
async def test_a_separate_verifier_sees_between_rounds_what_it_sees_in_the_end(
    make_task: MakeTask, backend: str
) -> None:
    toml = 'artifacts = ["/app/out"]\n[verifier]\nenvironment_mode = "separate"\n'
    toml += '[[verifier.collect]]\ncommand = "mkdir -p /app/out && cp /app/answer /app/out/"\n'
    tests = '#!/bin/sh\n[ "$(cat /app/out/answer)" = 42 ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n'
    user = Script("$ echo 42 > /app/answer", "$ ls /app")
    result = await bf.run(config(make_task(toml, {"tests/test.sh": tests}), user, backend))
    assert result.error is None, result.error
    assert result.verify_level == "fresh"
    assert [found["reward"] for found in result.rounds] == [1.0, 1.0]
    assert said(user.told[2] or RoundResult(0)) == ["answer\n"], "the hook ran on a fork, and not where the agent is"


# The tokens for the gateway that a role can find: its own, and not the one of the role that waits.
HUNT = r"""cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /home/*/.config/*/* | grep -aoE 'bf-[A-Za-z0-9_-]{40,}'"""


@pytest.mark.parametrize("backend", ON)
async def test_a_simulated_user_tells_the_assistant_what_it_wants(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    tell = """echo '{"to": "assistant", "content": "Please write 42."}' > .outbox/assistant.json"""
    done = """echo '{"to": "scene", "content": "done"}' > .outbox/scene.json"""
    scripts: dict[str, list[Step]] = {
        "You are playing a person": [Run(tell), Say("Told."), Run(done), Say("Thanks.")],
        "A user has written to you": [
            Run(f"echo tokens: $({HUNT} | sort -u | wc -l); echo 42 > /app/answer"),
            Say("Written."),
        ],
    }
    async with ModelServer([Say("?")], scripts=scripts) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-stand-in-1")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/v1")
        scene = bf.simulated_user(
            persona="a hurried engineer", goal="a file with 42", agent="goose", model="openai/gpt-5.5", rounds=5
        )
        task = make_task(files=FILES)
        asked = RolloutConfig(task_path=task, scenes=[scene], environment=backend, jobs_dir=task.parent / "jobs")
        result = await bf.run(asked)
        assert any("tokens: 1" in request.text for request in server.turns)
    assert result.error is None, result.error
    assert result.passed
    first, second, third = prompts_of(result)
    assert "a hurried engineer" in first
    assert "Please write 42." in second
    assert "The assistant has worked" in third, "and then it says that it is content"
