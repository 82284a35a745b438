"""Limits as settings: how they are written, what is known by them, and what follows from having met one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.job.callers import caller
from typer.testing import CliRunner

from benchflow import Job, JobConfig, RolloutConfig, RuntimeConfig
from benchflow.cli.app import app
from benchflow.errors import BudgetSpent, ConfigError
from benchflow.job.config import LIMITS
from benchflow.job.lock import config_json, config_of, read_lock
from benchflow.job.plan import measure
from benchflow.job.resume import remaining
from benchflow.job.retry import halt_of
from benchflow.job.row import row_of
from benchflow.job.summary import spent_before, total_usage
from benchflow.job.yaml_config import job_from_yaml
from benchflow.rollout.result import ErrorInfo, Usage
from benchflow.rollout.yaml_config import rollout_config_from_yaml

if TYPE_CHECKING:
    from pathlib import Path

    from tests.job.conftest import MakeRow, MakeTask

    from benchflow.job.lock import JobLock

KEYS = "max_cost: 0.5\nmax_tokens: 1000\nagent_working_timeout: 60\nallow_models: [claude-haiku-*]\n"


def test_every_wrong_limit_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        JobConfig(max_cost=-1, max_tokens=True, max_job_cost=float("nan"), max_job_tokens=-5, agent_working_timeout=-1)
    for name in ("max_cost", "max_tokens", "max_job_cost", "max_job_tokens", "agent_working_timeout"):
        assert f"{name} is" in caught.value.message
    with pytest.raises(ConfigError, match="max_cost"):
        RolloutConfig(task_path="x", max_cost=-1)  # type: ignore[arg-type]


def test_limits_in_files_and_in_the_lock(tmp_path: Path) -> None:
    one, many = tmp_path / "one.yaml", tmp_path / "many.yaml"
    one.write_text(f"task: t\nagent: nop\n{KEYS}")
    many.write_text(f"task_dir: tasks\nagent: nop\n{KEYS}max_job_cost: 20\nmax_job_tokens: 9000\n")
    rollout, job = rollout_config_from_yaml(one), job_from_yaml(many).config
    for config in (rollout, job, job_from_yaml(one).config):
        assert (config.max_cost, config.max_tokens, config.agent_working_timeout) == (0.5, 1000, 60)
        assert list(config.allow_models) == ["claude-haiku-*"]
    assert (job.max_job_cost, job.max_job_tokens) == (20, 9000)
    again = config_of(json.loads(json.dumps(config_json(job))), {}, "x")
    assert [getattr(again, name) for name in LIMITS] == [0.5, 1000, 20, 9000]
    many.write_text("task_dir: tasks\nagent: nop\nmax_costs: 3\n")
    with pytest.raises(ConfigError, match="did you mean 'max_cost'"):
        job_from_yaml(many)
    many.write_text("task_dir: tasks\nagent: nop\nallow_models: [3]\n")
    with pytest.raises(ConfigError, match="allow_models: text is expected"):
        job_from_yaml(many)
    assert RuntimeConfig(max_cost=1.0, agent_working_timeout=5.0).max_tokens is None


@pytest.mark.needs("local")
async def test_budgets_do_not_change_what_is_measured(make_task: MakeTask, local: str) -> None:
    async def ident(**settings: Any) -> str:
        return (await measure(RolloutConfig(task_path=folder, environment="local", **settings))).id

    folder = make_task("t")
    base = await ident()
    assert await ident(max_cost=1.0, max_tokens=5) == base
    assert len({base, await ident(agent_working_timeout=5), await ident(allow_models=["x"])}) == 3


def cut(make_row: MakeRow, scope: str, **fields: Any) -> Any:
    error = ErrorInfo.of(BudgetSpent("the budget is used up", scope=scope, kind="cost", limit=1.0), "agent_execution")
    limit = {"scope": scope, "kind": "cost", "limit": 1.0}
    return make_row("t", 1.0, error=error, limit=limit, model="m", **fields)


def test_what_a_limit_makes_of_a_rollout(make_row: MakeRow) -> None:
    own, jobs = cut(make_row, "rollout"), cut(make_row, "job")
    assert (own.scored, own.passed, own.cut_by_job) == (True, True, False)
    assert (jobs.scored, jobs.passed, jobs.cut_by_job) == (False, False, True)
    assert halt_of(own, backend_problem="", disk_free_mb=10_000) is None
    halt = halt_of(jobs, backend_problem="", disk_free_mb=10_000)
    assert halt is not None
    assert (halt.model, "--max-job-cost" in halt.message) == (None, True)
    assert jobs.to_json()["limit"] == {"scope": "job", "kind": "cost", "limit": 1.0}


class Lock:
    """What `remaining` asks of a lock."""

    def __init__(self, key: tuple[str, int], **config: float | None) -> None:
        self.keys = [key]
        self.config = config


@pytest.mark.parametrize(
    ("config", "again"), [({"max_cost": 1.0}, False), ({"max_cost": 0.5}, False), ({"max_cost": 1.5}, True), ({}, True)]
)
def test_what_its_own_budget_cut_off_is_done_again_with_more(
    make_row: MakeRow, config: dict[str, float], again: bool
) -> None:
    row = cut(make_row, "rollout")
    lock: JobLock = Lock(row.key, **config)  # type: ignore[assignment]
    assert remaining(lock, {row.key: row}) == ([row.key] if again else [])


def test_a_total_of_which_a_part_is_unknown(make_row: MakeRow) -> None:
    known = make_row("a", usage=Usage(input_tokens=10, requests=2, cost_usd=0.5, priced_usd=0.5, waiting_seconds=1.5))
    part = make_row("b", usage=Usage(input_tokens=5, requests=3, priced_usd=0.25, unpriced_requests=1, retries=4))
    none = make_row("c", None)
    assert total_usage([known, none])["cost_usd"] == 0.5
    total = total_usage([known, part, none])
    assert (total["cost_usd"], total["priced_usd"], total["requests"], total["retries"]) == (None, 0.75, 5, 4)
    spent = spent_before([known, part, none])
    assert (spent.requests, spent.priced, spent.cost, spent.tokens.input, spent.retries) == (5, 0.75, None, 15, 4)


def test_results_of_older_releases_are_read(tmp_path: Path) -> None:
    document = {"task": "t", "agent": "a", "model": None, "rewards": {"reward": 1.0}, "error": None}
    row = row_of({**document, "usage": {"input_tokens": 5, "cost_usd": 0.1}}, tmp_path)
    assert (row.limit, row.passed, spent_before([row]).requests) == (None, True, 0)


@pytest.mark.needs("local")
async def test_a_limit_that_nobody_could_keep_is_refused(
    make_task: MakeTask, tmp_path: Path, local: str, local_environment: pytest.MonkeyPatch
) -> None:
    """An agent with a login of its own talks to its provider past the gateway."""
    local_environment.setenv("HOME", str(tmp_path))
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY"):
        local_environment.delenv(name, raising=False)
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "oauth_creds.json").write_text("{}")
    task = make_task("t")
    (task / "task.toml").write_text('[task]\nname = "demo/t"\n')
    for limit in ("max_cost", "max_job_tokens"):
        config = JobConfig(agent="gemini", environment="local", **{limit: 5})  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=f"{limit} cannot be kept: gemini reaches gemini by itself"):
            await Job(task, tmp_path / "jobs", config).plan()
    await Job(task, tmp_path / "jobs", JobConfig(agent="gemini", environment="local", agent_working_timeout=9)).plan()


@pytest.mark.needs("local")
def test_limits_on_the_command_line(make_task: MakeTask, tmp_path: Path, local_environment: pytest.MonkeyPatch) -> None:
    """A job with no money at all starts nothing, says so, and goes on when it gets some."""
    local_environment.chdir(tmp_path)
    local_environment.setenv("ANTHROPIC_API_KEY", "sk-planted-000")
    local_environment.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    make_task("t")
    words = ["-t", "tasks/t", "-a", caller(tmp_path, "0"), "-m", "anthropic/claude-haiku-4-5", "-e", "local"]
    limits = ["--max-cost", "1", "--max-tokens", "900", "--agent-working-timeout", "60", "--allow-model", "claude-*"]
    job = ["--max-job-cost", "0", "--max-job-tokens", "50000", "--job-name", "x"]
    done = CliRunner().invoke(app, ["eval", "create", *words, *limits, *job])
    assert done.exit_code == 1, done.output
    assert "the job's budget is used up" in done.output
    lock = read_lock(tmp_path / "jobs" / "x")
    assert lock is not None
    kept = {"max_cost": 1, "max_tokens": 900, "max_job_cost": 0, "max_job_tokens": 50000, "agent_working_timeout": 60}
    assert {name: lock.config[name] for name in kept} == kept
    assert lock.config["allow_models"] == ["claude-*"]
    assert not list((tmp_path / "jobs" / "x").glob("*__*"))
    again = CliRunner().invoke(app, ["eval", "resume", "jobs/x", "--max-job-cost", "5"])
    assert again.exit_code == 0, again.output
    assert "Score: 1/1" in again.output
