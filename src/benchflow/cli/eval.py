"""`bench eval`: run an evaluation and look at what came out."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchflow.cli.console import console, err_console, fail, print_json
from benchflow.cli.loop import run

if TYPE_CHECKING:
    from benchflow.rollout.config import RolloutConfig
    from benchflow.rollout.result import RolloutResult

app = typer.Typer(
    help="Run an evaluation and look at what came out.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

EXAMPLES = """
Examples:

\b
  bench eval create -t examples/tasks/write-a-file -a oracle
  bench eval create -t my-task -a claude -m claude-sonnet-4-6 -e docker
  bench eval create -t my-task -a codex -m gpt-5.5 --prompt - --prompt "Check your work."
  bench eval create --config rollout.yaml --dry-run
"""


def create(
    tasks_dir: Annotated[Path | None, typer.Option("-t", "--tasks-dir", help="The task's folder.")] = None,
    agent: Annotated[
        str | None, typer.Option("-a", "--agent", help="Name, alias, name@version, file or command.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("-m", "--model", help="Such as claude-sonnet-4-6 or openai/gpt-5.5.")
    ] = None,
    sandbox: Annotated[str, typer.Option("-e", "--sandbox", "--environment", help="auto, docker or local.")] = "auto",
    config: Annotated[Path | None, typer.Option("--config", help="A YAML file with all of this.")] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option("--prompt", help="A prompt; repeat for more turns. '-' is the task's instruction."),
    ] = None,
    agent_env: Annotated[
        list[str] | None, typer.Option("--agent-env", help="NAME=value for the agent; NAME alone takes the host's.")
    ] = None,
    sandbox_user: Annotated[
        str, typer.Option("--sandbox-user", help="Who agents run as; 'root' gives them everything.")
    ] = "agent",
    sandbox_setup_timeout: Annotated[float, typer.Option(help="Seconds for setting up the sandbox user.")] = 120.0,
    agent_timeout: Annotated[float | None, typer.Option(help="Seconds for all turns; default: the task's.")] = None,
    jobs_dir: Annotated[Path, typer.Option(help="Where results go.")] = Path("jobs"),
    job_name: Annotated[str | None, typer.Option(help="Folder below --jobs-dir; default: the time.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, print the plan, run nothing.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only the outcome.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Run an agent on a task and score it."""
    if config is not None:
        if tasks_dir or agent or model or prompt:
            fail("--config says which task and agent to run; leave -t, -a, -m and --prompt out", code=2)
        from benchflow.rollout.yaml_config import rollout_config_from_yaml

        asked = rollout_config_from_yaml(config)
    else:
        if tasks_dir is None:
            fail("name the task with -t, or a file with --config", code=2)
        asked = _config(tasks_dir, agent or "oracle", model, prompt or ["-"])
        asked.environment = sandbox
        asked.sandbox_user = None if sandbox_user == "root" else sandbox_user
        asked.sandbox_setup_timeout = sandbox_setup_timeout
        asked.agent_timeout = agent_timeout
        asked.agent_env = _variables(agent_env or [])
        asked.jobs_dir = jobs_dir
        asked.job_name = job_name
    raise typer.Exit(run(_create(asked, dry_run=dry_run, quiet=quiet, as_json=as_json)))


app.command("create", epilog=EXAMPLES)(create)
app.command("run", hidden=True, epilog=EXAMPLES)(create)


@app.command("show", epilog="Example: bench eval show jobs/2026-01-01__10-00-00/write-a-file__1a2b3c4d")
def show(
    folder: Annotated[Path, typer.Argument(help="A rollout's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print result.json.")] = False,
) -> None:
    """Print one rollout: phases, tool calls, reward, and what went wrong."""
    from benchflow.cli.report import print_rollout
    from benchflow.view.load import read_result

    result = read_result(folder)
    if as_json:
        print_json(result)
    else:
        print_rollout(folder, result)


def _config(task: Path, agent: str, model: str | None, prompts: list[str]) -> RolloutConfig:
    from benchflow.rollout.config import RolloutConfig
    from benchflow.rollout.scene import Scene

    scene = Scene.single(agent, model, prompts=[None if prompt == "-" else prompt for prompt in prompts])
    return RolloutConfig(task_path=task, scenes=[scene])


def _variables(pairs: list[str]) -> dict[str, str]:
    import os

    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals and name not in os.environ:
            fail(f"--agent-env {name}: it is not set here; write {name}=value", code=2)
        found[name] = value if equals else os.environ[name]
    return found


async def _create(config: RolloutConfig, *, dry_run: bool, quiet: bool, as_json: bool) -> int:
    from benchflow.cli.progress import LiveLines
    from benchflow.rollout.lifecycle import Rollout
    from benchflow.rollout.plan import make_plan

    plan = await make_plan(config)
    try:
        if dry_run:
            from benchflow.cli.report import print_plan

            print_plan(plan)
            return 0
        silent = quiet or as_json
        if not silent:
            err_console().print(plan.backend_reason, markup=False, soft_wrap=True)
        result = await Rollout(config, plan=plan, observer=None if silent else LiveLines()).run()
        if as_json:
            print_json(summary_document(result))
        else:
            _print_outcome(result, quiet=quiet)
        return 1 if result.error else 0
    finally:
        await plan.backend.close()


def summary_document(result: RolloutResult) -> dict[str, Any]:
    """What `--json` prints of a run."""
    from benchflow.job.score import score

    row = result.to_json()
    keys = ("task", "agent", "model", "rewards", "error", "rollout_dir", "timing")
    return {
        "job_dir": str(result.rollout_dir.parent),
        "score": dataclasses.asdict(score([result])),
        "usage": row["usage"],
        "rollouts": [{key: row[key] for key in keys}],
    }


def _print_outcome(result: RolloutResult, *, quiet: bool) -> None:
    out = console()
    for note in () if quiet else result.notes:
        err_console().print(f"note: {note}", markup=False, soft_wrap=True)
    if result.error:
        error = result.error
        err_console().print(f"{error.boundary} error in {error.phase}: {error.message}", markup=False, soft_wrap=True)
    verdict = "[green]\\[PASS][/]" if result.passed else "[red]\\[FAIL][/]"
    rewards = ", ".join(f"{name} {value:g}" for name, value in (result.rewards or {}).items()) or "no reward"
    out.print(f"{verdict} {result.task}  {rewards}", soft_wrap=True)
    out.print(f"Score: {int(result.passed)}/1", highlight=False)
    if not quiet:
        out.print(f"Results: {result.rollout_dir}", soft_wrap=True)
