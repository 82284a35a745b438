"""`bench eval`, `bench job` and `bench metrics`: what they print, how they end, and what Ctrl-C does."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from benchflow.cli.app import app
from benchflow.cli.console import console, err_console
from benchflow.cli.dashboard import Dashboard
from benchflow.errors import BenchflowError
from benchflow.job import Job, JobConfig
from benchflow.job.regrade import Regrades
from benchflow.job.row import row_of
from benchflow.job.scheduler import Work
from benchflow.sandbox.registry import close_backends

if TYPE_CHECKING:
    from typer.testing import Result

    from benchflow.job.resume import JobPlan

TOML = '[task]\nname = "demo/{name}"\n[environment]\nnetwork_mode = "no-network"\n'
TEST = "#!/bin/sh\nmkdir -p /logs/verifier\n[ -f /app/done ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n"

pytestmark = pytest.mark.needs("local")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def here(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own to stand in, with sandboxes on the host's root."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{cache}/no.sock")
    return tmp_path


@pytest.fixture
def tasks(here: Path) -> Path:
    for name in ("a", "b", "c"):
        task(here / "tasks" / name)
    return here / "tasks"


def task(folder: Path, *, test: str = TEST, solve: str = "touch /app/done") -> None:
    files = {
        "task.toml": TOML.format(name=folder.name),
        "instruction.md": "Make /app/done.\n",
        "environment/Dockerfile": "FROM not-there:1\nWORKDIR /app\n",
        "tests/test.sh": test,
        "solution/solve.sh": f"#!/bin/sh\n{solve}\n",
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def bench(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_one_task_passes_and_fails(tasks: Path) -> None:
    passed = bench("eval", "create", "-t", "tasks/a", "-a", "oracle", "-e", "local")
    assert passed.exit_code == 0, passed.output
    assert "[PASS] demo/a  reward 1" in passed.stdout
    assert "Score: 1/1" in passed.stdout
    failed = bench("run", "-t", "tasks/a", "-a", "nop", "-e", "local", "--quiet")
    assert failed.exit_code == 0
    assert failed.stdout == "[FAIL] demo/a  reward 0\nScore: 0/1\n"


def test_many_tasks(tasks: Path) -> None:
    done = bench("job", "-t", "tasks", "-a", "oracle", "-a", "nop", "-e", "local", "-c", "3", "--job-name", "x")
    assert done.exit_code == 0, done.output
    assert "[PASS] demo/b  oracle  reward 1" in done.stdout
    assert "[FAIL] demo/b  nop  reward 0" in done.stdout
    assert "Score: 3/6" in done.stdout
    assert "3 passed of 6 scored, 0 lost: 50.0 %" in done.stdout
    assert "6/6" in done.stderr

    listed = bench("eval", "list", "--json")
    assert [(job["name"], job["state"], job["score"]["passed"]) for job in json.loads(listed.stdout)] == [
        ("x", "finished", 3)
    ]
    assert "x    finished  nop, oracle" in bench("eval", "list").stdout
    shown = bench("eval", "show", "jobs/x")
    assert shown.stdout.count("demo/b") == 2
    rollouts = json.loads(bench("eval", "show", "jobs/x", "--json").stdout)["rollouts"]
    one = bench("eval", "show", rollouts[0]["rollout_dir"])
    assert "[FAIL] reward 0" in one.stdout
    assert "nop" in bench("metrics", "jobs/").stdout
    assert json.loads(bench("eval", "metrics", "jobs/x", "--json").stdout)["overall"]["score"]["scored"] == 6
    assert bench("metrics", "jobs/x", "--csv").stdout.count("\n") == 3

    bench("eval", "-t", "tasks", "-a", "nop", "-e", "local", "--job-name", "y", "--quiet")
    compared = json.loads(bench("eval", "compare", "jobs/x", "jobs/y", "--json").stdout)
    assert compared["difference"] == pytest.approx(-0.5)
    assert "in common" in bench("eval", "compare", "jobs/x", "jobs/y").stdout
    merged = bench("eval", "merge", "jobs/x", "jobs/y", "--into", "jobs/z")
    assert "9 rollouts" in merged.stdout


def test_json_is_one_document(tasks: Path) -> None:
    done = bench("eval", "create", "-t", "tasks", "-e", "local", "--json", "--n-tasks", "2", "--job-name", "x")
    document = json.loads(done.stdout)
    assert document["job_dir"] == "jobs/x"
    assert document["score"] == {
        "passed": 2,
        "scored": 2,
        "lost": 0,
        "total": 2,
        "mean_reward": 1.0,
        "interval": document["score"]["interval"],
    }
    assert [row["task"] for row in document["rollouts"]] == ["demo/a", "demo/b"]
    assert set(document["rollouts"][0]) >= {"task", "agent", "model", "rewards", "error", "rollout_dir", "timing"}
    assert not done.stderr
    resumed = json.loads(bench("eval", "resume", "jobs/x", "--json").stdout)
    assert resumed["rollouts"] == document["rollouts"]


def test_an_error_exits_1_and_is_lost(tasks: Path) -> None:
    task(tasks / "b", test="#!/bin/sh\nexit 0\n")
    done = bench("eval", "create", "-t", "tasks", "-e", "local", "--junit", "out/junit.xml", "--fail-under", "0.5")
    assert done.exit_code == 1
    assert "[LOST] demo/b  oracle  no reward" in done.stdout
    assert "2 passed of 2 scored, 1 lost" in done.stdout
    assert "verifier error" in done.stderr
    suite = ET.parse("out/junit.xml").getroot()
    assert (suite.get("tests"), suite.get("errors"), suite.get("failures")) == ("3", "1", "0")


def test_a_score_below_the_line_exits_1(tasks: Path) -> None:
    words = ("eval", "create", "-t", "tasks/a", "-a", "nop", "-e", "local", "-q", "--fail-under")
    assert bench(*words, "0.1").exit_code == 1
    assert bench(*words, "0").exit_code == 0


def test_a_dry_run_starts_nothing(tasks: Path) -> None:
    words = ("eval", "create", "-t", "tasks", "-a", "nop", "-e", "local", "--attempts", "2", "--dry-run")
    done = bench(*words)
    assert done.exit_code == 0, done.output
    assert "6 rollouts, 6 to do" in done.stdout
    assert "Make /app/done." in done.stdout
    document = json.loads(bench(*words, "--json").stdout)
    assert (document["total"], document["to_do"], len(document["measurements"])) == (6, 6, 3)
    assert document["tasks"]["demo/a"]["digest"].startswith("sha256:")
    assert not Path("jobs").exists()


def test_a_file_and_options_over_it(tasks: Path) -> None:
    Path("job.yaml").write_text("task_dir: tasks\nagent: nop\nenvironment: local\nattempts: 3\njob_name: y\n")
    document = json.loads(
        bench("eval", "create", "--config", "job.yaml", "--attempts", "1", "--dry-run", "--json").stdout
    )
    assert document["total"] == 3
    assert document["config"]["agent"] == "nop"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("eval", "create"), 2, "-t"),
        (("eval", "create", "--config", "x.yaml", "-a", "nop"), 2, "--config"),
        (("eval", "create", "-t", "tasks", "--source-repo", "a/b"), 2, "not from both"),
        (("eval", "create", "-t", "tasks", "--source-path", "a"), 2, "--source-repo"),
        (("eval", "create", "--dataset", "a"), 2, "registry"),
        (("eval", "create", "-t", "tasks", "-c", "0"), 2, "--concurrency"),
        (("eval", "create", "-t", "tasks", "--agent-env", "NOT_SET_HERE"), 2, "NOT_SET_HERE"),
        (("eval", "create", "-t", "tasks", "--agent-env", "=x"), 2, "a name is missing"),
        (("metrics", "--json", "--csv"), 2, "not both"),
    ],
)
def test_wrong_usage_exits_2(words: tuple[str, ...], code: int, said: str) -> None:
    done = bench(*words)
    assert done.exit_code == code
    assert said in done.stderr


def test_mistakes_in_settings_are_said_together(tasks: Path) -> None:
    done = bench("eval", "create", "-t", "tasks", "-a", "claud", "-a", "codexx", "-e", "dockr")
    assert isinstance(done.exception, BenchflowError)
    assert all(word in str(done.exception) for word in ("claud", "codexx", "dockr", "3 problems"))


def test_a_report_that_cannot_be_written_is_said_before_anything_starts(tasks: Path) -> None:
    for place in ("tasks", "tasks/a/instruction.md/x.xml"):
        done = bench("eval", "create", "-t", "tasks", "-a", "nop", "-e", "local", "--junit", place)
        assert isinstance(done.exception, BenchflowError)
        assert f"--junit {place}" in str(done.exception)
    assert not Path("jobs").exists()


def process(*words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "benchflow.cli.app", *words]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)


def wait_for(path: Path, text: str, times: int = 1) -> None:
    for _ in range(3000):
        if path.exists() and path.read_text().count(text) >= times:
            return
        time.sleep(0.02)
    pytest.fail(f"{text} never came to {path}")


def test_ctrl_c_once_finishes_what_runs_and_twice_cancels_it(tasks: Path) -> None:
    for name in ("a", "b", "c"):
        task(tasks / name, solve="sleep 2\ntouch /app/done")
    words = ("eval", "create", "-t", "tasks", "-e", "local", "-c", "1", "--job-name", "x")
    events = Path("jobs/x/events.jsonl")
    with process(*words) as once:
        wait_for(events, '"started"')
        once.send_signal(signal.SIGINT)
        out, err = once.communicate(timeout=300)
    assert once.returncode == 130, err
    assert "Score: 1/3" in out
    assert "resume with: bench eval resume jobs/x" in err

    with process("eval", "resume", "jobs/x") as twice:
        wait_for(events, '"started"', times=2)
        twice.send_signal(signal.SIGINT)
        wait_for(events, '"draining"', times=2)
        twice.send_signal(signal.SIGINT)
        out, err = twice.communicate(timeout=300)
    assert twice.returncode == 130, err
    assert "interrupted" in err
    assert "resume with: bench eval resume jobs/x" in err
    final = bench("eval", "resume", "jobs/x", "-c", "3")
    assert final.exit_code == 0, final.output
    assert "Score: 3/3" in final.stdout


def test_on_a_terminal_there_is_a_board(tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    console.cache_clear()
    err_console.cache_clear()
    try:
        done = bench("job", "-t", "tasks", "-a", "oracle", "-e", "local", "-c", "2")
    finally:
        console.cache_clear()
        err_console.cache_clear()
    assert done.exit_code == 0, done.output
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.stderr)
    assert "0/3" in plain
    assert "running" in plain
    assert "demo/a" in plain
    assert "Score: 3/3" in re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)


def test_the_board_counts_and_shows(tasks: Path) -> None:
    """Every event changes what is drawn, and nothing that an agent says reaches the terminal as it is."""

    async def plan() -> JobPlan:
        try:
            return await Job(tasks, config=JobConfig(environment="local", attempts=20)).plan()
        finally:
            await close_backends()

    found = asyncio.run(plan())
    board = Dashboard(found)
    keys = list(found.lock.keys)
    for key in keys[:20]:
        watcher = board.watch(Work(key), found.measurements[key[0]])
        watcher.phase("agent_execution")
        watcher.event({"type": "tool_call", "title": "rm \x1b[2J\nsecond line"})
    usage = {"input_tokens": 1000, "output_tokens": None, "cached_tokens": None, "cost_usd": 0.25}
    for key, reward in zip(keys, (1.0, 0.0, None), strict=False):
        board.job_event(
            {"event": "finished", "measurement": key[0], "attempt": key[1], "reward": reward, "passed": reward == 1.0,
             "usage": usage}
        )  # fmt: skip
    board.job_event({"event": "halted", "message": "the daemon is gone"})
    text = io.StringIO()
    Console(file=text, width=140).print(board)
    drawn = text.getvalue()
    for words in ("3/60", "1 passed", "1 failed", "1 lost", "50.0 %", "working", "rm \ufffd[2J", "and 1 more", "$0.75"):
        assert words in drawn, words
    assert "the daemon is gone" in drawn
    assert "\x1b" not in drawn
    assert "second line" not in drawn


def test_the_board_counts_what_is_graded_again_once(tasks: Path) -> None:
    async def plan() -> JobPlan:
        try:
            return await Job(tasks, config=JobConfig(environment="local")).plan()
        finally:
            await close_backends()

    found = asyncio.run(plan())
    document = {"task": "t", "agent": "oracle", "model": None, "rewards": {"reward": 1.0}, "error": None}
    rows = {key: row_of(document, Path("x")) for key in found.lock.keys}
    again, *_ = rows
    board = Dashboard(replace(found, ended=rows, regrades=Regrades({again: rows[again]})))
    text = io.StringIO()
    Console(file=text, width=140).print(board)
    board.job_event(
        {"event": "finished", "measurement": again[0], "attempt": 1, "reward": 0.0, "passed": False, "usage": {}}
    )
    Console(file=text, width=140).print(board)
    assert re.findall(r"\d/3 \d passed \d failed", re.sub(r" +", " ", text.getvalue())) == [
        "2/3 2 passed 0 failed",
        "3/3 2 passed 1 failed",
    ]


def test_the_disk_that_jobs_take_is_shown_and_a_size_is_checked(tasks: Path) -> None:
    bench("eval", "create", "-t", "tasks/a", "-e", "local", "-q", "--job-name", "x")
    shown = bench("cleanup", "--dry-run")
    assert re.search(r"^job jobs/x: [\d.]+ kB$", shown.stdout, re.MULTILINE), shown.output
    assert json.loads(bench("cleanup", "--dry-run", "--json").stdout)["jobs"].keys() == {"jobs/x"}
    wrong = bench("eval", "create", "-t", "tasks/a", "-e", "local", "--max-disk", "much")
    assert isinstance(wrong.exception, BenchflowError)
    assert "50GB" in str(wrong.exception)


def test_grading_again_on_the_command_line(tasks: Path) -> None:
    words = ("eval", "create", "-t", "tasks", "-a", "nop", "-e", "local", "-q", "--job-name", "x")
    bench(*words, "--include", "a")
    bench(*words, "--include", "a", "--include", "b", "--keep-workspace")
    always = "#!/bin/sh\nmkdir -p /logs/verifier\necho 1 > /logs/verifier/reward.txt\n"
    for name in ("a", "b"):
        (tasks / name / "tests" / "test.sh").write_text(always)
    planned = json.loads(bench("eval", "resume", "jobs/x", "--regrade", "--dry-run", "--json").stdout)
    assert (planned["to_do"], planned["total"]) == (1, 2)
    graded = bench("eval", "resume", "jobs/x", "--regrade")
    assert graded.exit_code == 1
    assert "[PASS] demo/b" in graded.stdout
    assert re.search(r"not graded again: a__\w+: what its agent left was not kept", graded.stderr)
    again = bench(*words, "--include", "b", "--regrade", "--keep-workspace")
    assert again.exit_code == 0, again.output
    assert again.stdout.endswith("Score: 1/1\n")


def test_the_ci_example_of_the_documentation_is_one(tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a workflow, and what it runs is a command that exists."""
    page = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text()
    found = re.search(r"^```text\n(name: evaluate\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    steps = yaml.safe_load(found[1])["jobs"]["evaluate"]["steps"]
    command = next(step["run"] for step in steps if step.get("run", "").startswith("bench "))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-stand-in-1")
    words = [{"docker": "local"}.get(word, word) for word in command.split()[1:]]
    done = bench(*words, "--dry-run")
    assert done.exit_code == 0, done.output
    assert "claude-sonnet-4-6" in done.stdout
