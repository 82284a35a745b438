"""`bench eval`: run evaluations and look at what came out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from benchflow.cli.apps import new_app
from benchflow.cli.console import console, fail, print_json
from benchflow.cli.limits import AllowModel, MaxCost, MaxJobCost, MaxJobTokens, MaxTokens, WorkingTimeout
from benchflow.cli.loop import run
from benchflow.cli.metrics import AsJson, metrics
from benchflow.cli.view import view

if TYPE_CHECKING:
    from benchflow.job.config import JobConfig
    from benchflow.job.job import Job
    from benchflow.job.source import TaskSource
    from benchflow.job.yaml_config import JobFile


class CreateByDefault(TyperGroup):
    """`bench eval -t ...` is `bench eval create -t ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        bare = bool(args) and args[0].startswith("-") and args[0] not in ("-h", "--help")
        return super().parse_args(ctx, ["create", *args] if bare else args)


app = new_app(
    cls=CreateByDefault,
    help="Run evaluations and look at what came out.",
    no_args_is_help=True,
)

EXAMPLES = """
Examples:

\b
  bench eval create -t examples/tasks/write-a-file -a oracle
  bench eval create -t tasks/ -a claude -m claude-sonnet-4-6 -c 8 --attempts 3
  bench eval create -t tasks/ -a claude -a codex --include 'git-*' --job-name mine
  bench eval create --source-repo owner/tasks --source-ref v2 -a gemini -e docker
  bench eval create -t my-task -a codex -m gpt-5.5 --prompt - --prompt "Check your work."
  bench eval create --config job.yaml --dry-run

Exit codes: 0 everything ran, whatever the score; 1 a mistake in the settings, a rollout with an error, or a score
below --fail-under; 2 wrong usage; 130 interrupted. Ctrl-C once finishes what runs, twice cancels it; either way the
job can be resumed, by `bench eval resume` or by the same command with the same --job-name.
"""

AgentEnv = Annotated[
    list[str] | None, typer.Option("--agent-env", help="NAME=value for the agent; NAME alone takes the host's.")
]
Concurrency = Annotated[int | None, typer.Option("-c", "--concurrency", min=1, help="Rollouts at the same time.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, print the plan, run nothing.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print only the outcome.")]
FailUnder = Annotated[
    float | None, typer.Option("--fail-under", min=0, max=1, help="Exit 1 when the share that passed is below this.")
]
Regrade = Annotated[
    bool, typer.Option("--regrade", help="Run no agent: score what agents left again, with the tests as they are now.")
]
MaxDisk = Annotated[
    str | None,
    typer.Option("--max-disk", metavar="SIZE", help="Start nothing more when jobs and caches hold more: 50GB."),
]
Junit = Annotated[Path | None, typer.Option("--junit", help="Also write the results as a JUnit file.")]


def create(
    tasks_dir: Annotated[
        Path | None,
        typer.Option("-t", "--tasks-dir", help="A task, a folder of tasks, a registry.json or a dataset.toml."),
    ] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", help="Which of a registry: name or name@version.")] = None,
    source_repo: Annotated[str | None, typer.Option("--source-repo", help="Tasks of a git repository.")] = None,
    source_path: Annotated[str | None, typer.Option("--source-path", help="The folder of tasks in it.")] = None,
    source_ref: Annotated[str | None, typer.Option("--source-ref", help="A branch, tag or commit of it.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="A YAML file with all of this.")] = None,
    agent: Annotated[
        list[str] | None, typer.Option("-a", "--agent", help="Name, alias, name@version, file or command; repeatable.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("-m", "--model", help="Such as claude-sonnet-4-6 or openai/gpt-5.5; repeatable."),
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option("--prompt", help="A prompt; repeat for more turns. '-' is the task's instruction."),
    ] = None,
    loop: Annotated[
        str | None,
        typer.Option("--loop", metavar="NAME:TIMES", help="After the first answer: self-review:2, verify-retry:2."),
    ] = None,
    skills_dir: Annotated[
        Path | None, typer.Option("--skills-dir", help="A folder of skills that the agents are given.")
    ] = None,
    sandbox: Annotated[
        str | None, typer.Option("-e", "--sandbox", "--environment", help="auto (the default), docker or local.")
    ] = None,
    concurrency: Concurrency = None,
    attempts: Annotated[int | None, typer.Option(min=1, help="Rollouts of each task; default 1.")] = None,
    retries: Annotated[
        int | None, typer.Option(min=0, help="How often a rollout that was lost is tried again; default 2.")
    ] = None,
    include: Annotated[list[str] | None, typer.Option(help="Only tasks of this name or glob; repeatable.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="No tasks of this name or glob; repeatable.")] = None,
    n_tasks: Annotated[int | None, typer.Option(min=1, help="Only the first so many tasks.")] = None,
    shuffle: Annotated[bool | None, typer.Option("--shuffle", help="Put the tasks in a random order.")] = None,
    seed: Annotated[int | None, typer.Option(help="Which random order; implies --shuffle.")] = None,
    agent_env: AgentEnv = None,
    sandbox_user: Annotated[
        str | None, typer.Option(help="Who agents run as; 'root' gives them everything; default agent.")
    ] = None,
    sandbox_setup_timeout: Annotated[
        float | None, typer.Option(help="Seconds for setting up the sandbox user; default 120.")
    ] = None,
    agent_timeout: Annotated[float | None, typer.Option(help="Seconds for all turns; default: the task's.")] = None,
    agent_working_timeout: WorkingTimeout = None,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    max_job_cost: MaxJobCost = None,
    max_job_tokens: MaxJobTokens = None,
    allow_model: AllowModel = None,
    jobs_dir: Annotated[Path | None, typer.Option(help="Where results go; default jobs.")] = None,
    job_name: Annotated[str | None, typer.Option(help="Folder below --jobs-dir; default: the time.")] = None,
    keep_workspace: Annotated[
        bool | None,
        typer.Option("--keep-workspace", help="Keep what agents left, so that --regrade can score it again."),
    ] = None,
    regrade: Regrade = False,
    max_disk: MaxDisk = None,
    remove_images: Annotated[
        bool | None, typer.Option("--remove-images", help="Remove what was built for a task when it is done.")
    ] = None,
    fail_under: FailUnder = None,
    junit: Junit = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run agents on tasks and score them. What is finished in the job's folder is kept."""
    given: dict[str, Any] = {
        "agent": agent,
        "model": model,
        "prompts": [None if text == "-" else text for text in prompt] if prompt else None,
        "loop": loop,
        "skills_dir": skills_dir,
        "environment": sandbox,
        "concurrency": concurrency,
        "attempts": attempts,
        "include": include,
        "exclude": exclude,
        "n_tasks": n_tasks,
        "shuffle": shuffle or (seed is not None or None),
        "seed": seed,
        "agent_env": variables(agent_env),
        "sandbox_setup_timeout": sandbox_setup_timeout,
        "agent_timeout": agent_timeout,
        "keep_workspace": keep_workspace,
        "max_disk_mb": megabytes(max_disk),
        "remove_images": remove_images,
        "agent_working_timeout": agent_working_timeout,
        "max_cost": max_cost,
        "max_tokens": max_tokens,
        "max_job_cost": max_job_cost,
        "max_job_tokens": max_job_tokens,
        "allow_models": allow_model,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    if sandbox_user is not None:
        settings["sandbox_user"] = None if sandbox_user == "root" else sandbox_user
    source = _source(tasks_dir, dataset, source_repo, source_path, source_ref)
    asked = _asked(config, source, settings, retries)
    from benchflow.job.job import Job

    job = Job(
        source=asked.source,
        config=asked.config,
        jobs_dir=jobs_dir or asked.jobs_dir or "jobs",
        job_name=job_name or asked.job_name,
        regrade=regrade,
    )
    _conduct(job, dry_run=dry_run, quiet=quiet, as_json=as_json, fail_under=fail_under, junit=junit)


app.command("create", epilog=EXAMPLES)(create)
app.command("run", hidden=True, epilog=EXAMPLES)(create)
app.command("metrics", epilog="Example: bench eval metrics jobs/mine --json")(metrics)
app.command("view", epilog="Example: bench eval view jobs/mine/write-a-file__1a2b3c4d")(view)


@app.command("resume", epilog="Example: bench eval resume jobs/2026-01-01__10-00-00")
def resume(
    folder: Annotated[Path, typer.Argument(help="A job's folder.", show_default=False)],
    concurrency: Concurrency = None,
    agent_env: AgentEnv = None,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    max_job_cost: MaxJobCost = None,
    max_job_tokens: MaxJobTokens = None,
    regrade: Regrade = False,
    max_disk: MaxDisk = None,
    fail_under: FailUnder = None,
    junit: Junit = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Finish a job as it was planned: run what has no score yet, and what a smaller budget cut off."""
    from benchflow.job.job import Job

    asked = {
        "max_cost": max_cost,
        "max_tokens": max_tokens,
        "max_job_cost": max_job_cost,
        "max_job_tokens": max_job_tokens,
        "max_disk_mb": megabytes(max_disk),
    }
    limits = {name: value for name, value in asked.items() if value is not None}
    job = Job.resume(folder, agent_env=variables(agent_env), concurrency=concurrency, limits=limits, regrade=regrade)
    _conduct(job, dry_run=dry_run, quiet=quiet, as_json=as_json, fail_under=fail_under, junit=junit)


@app.command("list", epilog="Example: bench eval list --json")
def list_jobs(
    folder: Annotated[Path, typer.Argument(help="Where jobs are.")] = Path("jobs"),
    as_json: AsJson = False,
) -> None:
    """List jobs: how far they are and what they scored."""
    from benchflow.job.listing import job_info
    from benchflow.job.store import job_folders

    found = [job_info(job) for job in job_folders(folder)]
    if as_json:
        print_json([info.to_json() for info in found])
        return
    from benchflow.cli.report import print_jobs

    print_jobs(found)


@app.command(
    "show",
    epilog="Examples: bench eval show jobs/mine · bench eval show jobs/mine/write-a-file__1a2b3c4d",
)
def show(
    folder: Annotated[Path, typer.Argument(help="A job's folder, or a rollout's.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show a job (every rollout), or one rollout: phases, tool calls, reward, and what went wrong."""
    from benchflow.cli.report import print_job, print_rollout
    from benchflow.job.store import is_job
    from benchflow.view.load import read_result

    if is_job(folder):
        print_job(folder, as_json=as_json)
        return
    result = read_result(folder)
    if as_json:
        print_json(result)
    else:
        print_rollout(folder, result)


@app.command("compare", epilog="Example: bench eval compare jobs/before jobs/after")
def compare(
    a: Annotated[Path, typer.Argument(help="A job's folder, or a folder of jobs.", show_default=False)],
    b: Annotated[Path, typer.Argument(help="Another one.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Compare two sets of results on their common tasks: the difference, how sure it is, and which tasks changed."""
    from benchflow.job.compare import compare_folders

    found = compare_folders(a, b)
    if as_json:
        print_json(found.to_json())
    else:
        console().print(found.summary(), markup=False, soft_wrap=True)


@app.command("merge", epilog="Example: bench eval merge jobs/monday jobs/tuesday --into jobs/both")
def merge(
    folders: Annotated[list[Path], typer.Argument(help="Jobs' folders.", show_default=False)],
    into: Annotated[Path, typer.Option("--into", help="A new folder, or a job to add to.", show_default=False)],
) -> None:
    """Put the results of several jobs together; the same measurement in two of them becomes further attempts."""
    from benchflow.job.merge import merge_jobs

    console().print(f"{merge_jobs(folders, into)} rollouts in {into}", markup=False, soft_wrap=True)


def variables(pairs: list[str] | None) -> dict[str, str] | None:
    """`--agent-env` as a table; a name alone takes the value it has here."""
    if not pairs:
        return None
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name:
            fail(f"--agent-env {pair!r}: a name is missing; write NAME=value", code=2)
        if not equals and name not in os.environ:
            fail(f"--agent-env {name}: it is not set here; write {name}=value", code=2)
        found[name] = value if equals else os.environ[name]
    return found


def megabytes(size: str | None) -> int | None:
    """`--max-disk` as the settings have it."""
    if size is None:
        return None
    from benchflow.job.size import parse_size

    return max(1, parse_size(size) // 1_000_000)


def _source(
    tasks_dir: Path | None, dataset: str | None, repo: str | None, path: str | None, ref: str | None
) -> TaskSource | None:
    if tasks_dir and repo:
        fail("tasks come from -t or from --source-repo, not from both", code=2)
    if (path or ref) and not repo:
        fail("--source-path and --source-ref need --source-repo", code=2)
    if dataset and not tasks_dir:
        fail("--dataset names one of the datasets in the registry that -t names", code=2)
    if not (tasks_dir or repo):
        return None
    from benchflow.job.source import TaskSource

    return TaskSource(path=tasks_dir, dataset=dataset, repo=repo, repo_path=path, ref=ref)


def _asked(config: Path | None, source: TaskSource | None, settings: dict[str, Any], retries: int | None) -> JobFile:
    """What a file or the options say; options win over the file, but for what is run on what."""
    from benchflow.job.config import JobConfig
    from benchflow.job.yaml_config import JobFile, job_from_yaml

    if config is None:
        if source is None:
            fail("name the tasks with -t or --source-repo, or a file with --config", code=2)
        return JobFile(source, _with(JobConfig(), settings, retries))
    if source or settings.keys() & {"agent", "model", "prompts"}:
        fail("--config says which tasks and agents to run; leave -t, --source-repo, -a, -m and --prompt out", code=2)
    file = job_from_yaml(config)
    return JobFile(file.source, _with(file.config, settings, retries), file.jobs_dir, file.job_name)


def _with(config: JobConfig, settings: dict[str, Any], retries: int | None) -> JobConfig:
    from dataclasses import replace

    if retries is not None:
        settings = {**settings, "retry": replace(config.retry, max_retries=retries)}
    return replace(config, **settings)


def _conduct(job: Job, **output: Any) -> None:
    from benchflow.cli.conduct import Output, conduct

    raise typer.Exit(run(conduct(job, Output(**output)), drain=job.drain))
