"""`bench replay`: run a recorded rollout again, without a provider."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from benchflow.cli.apps import new_app
from benchflow.cli.console import console, err_console, fail, print_json
from benchflow.cli.eval import AgentEnv, Quiet, variables
from benchflow.cli.loop import run
from benchflow.cli.metrics import AsJson

if TYPE_CHECKING:
    from benchflow.rollout.replay import Recording, Replay

app = new_app()

EPILOG = """
Examples:

\b
  bench replay jobs/mine/write-a-file__1a2b3c4d
  bench replay jobs/mine/write-a-file__1a2b3c4d --from-turn 3 -m openai/gpt-5.5

A turn is one answer of the model. Exit codes: 0 it ran to its end, whatever the score; 1 a mistake in the settings, a
request that differs from the recorded one, or another error; 2 wrong usage; 130 interrupted.
"""


@app.command(epilog=EPILOG)
def replay(
    folder: Annotated[Path, typer.Argument(help="A rollout's folder.", show_default=False)],
    from_turn: Annotated[
        int | None, typer.Option("--from-turn", min=1, help="Let a live model answer from this turn on.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("-m", "--model", help="The live model; default: the recorded one.")
    ] = None,
    task: Annotated[Path | None, typer.Option("--task", help="Where the task is now, if it was moved.")] = None,
    changed_task: Annotated[
        bool, typer.Option("--changed-task", help="Run on the task as it is now, though it has changed.")
    ] = False,
    sandbox: Annotated[
        str | None, typer.Option("-e", "--sandbox", help="auto, docker or local; default: the recorded one.")
    ] = None,
    agent_env: AgentEnv = None,
    jobs_dir: Annotated[Path, typer.Option(help="Where results go.")] = Path("jobs"),
    job_name: Annotated[str | None, typer.Option(help="Folder below --jobs-dir; default: the time.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a recorded rollout again: same agent, same task, fresh sandbox, recorded answers, no provider.

    It stops at the first request that differs in substance from the recorded one, and says how.
    """
    if model and from_turn is None:
        fail("-m says which model goes on live; say from which turn with --from-turn", code=2)
    from benchflow.rollout.replay import read_recording

    given = {"task_path": task, "environment": sandbox}
    recording = read_recording(
        folder,
        environ={**os.environ, **(variables(agent_env) or {})},
        given={name: value for name, value in given.items() if value is not None},
    )
    settings: dict[str, Any] = {
        "from_turn": from_turn,
        "model": model,
        "changed_task": changed_task,
        "jobs_dir": jobs_dir,
        "job_name": job_name,
    }
    raise typer.Exit(run(_replay(recording, settings, quiet=quiet, as_json=as_json)))


async def _replay(recording: Recording, settings: dict[str, Any], *, quiet: bool, as_json: bool) -> int:
    from benchflow.cli.progress import LiveLines
    from benchflow.rollout.replay import replay as run_again

    done = await run_again(recording, **settings, observer=None if quiet or as_json else LiveLines())
    if as_json:
        print_json(_document(recording, done, settings))
    else:
        _print(recording, done, quiet=quiet)
    return int(done.rollout.error is not None)


def _document(recording: Recording, done: Replay, settings: dict[str, Any]) -> dict[str, Any]:
    result = done.rollout.to_json()
    return {
        "replay_of": str(recording.folder),
        "from_turn": settings["from_turn"],
        "difference": done.difference,
        "unused_answers": done.unused,
        "provider_requests": done.provider_requests,
        "recorded_rewards": recording.rewards,
        **{name: result[name] for name in ("task", "agent", "model", "rewards", "error", "rollout_dir", "timing")},
    }


def _print(recording: Recording, done: Replay, *, quiet: bool) -> None:
    result, out, remarks = done.rollout, console(), err_console()
    if result.error:
        remarks.print(Text(f"{result.error.boundary} error in {result.error.phase}: {result.error.message}"))
    if done.unused and not done.difference:
        remarks.print(f"note: {done.unused} recorded answers were not asked for")
    word = "PASS" if result.passed else "FAIL" if result.rewards else "LOST"
    out.print(Text(f"[{word}] {result.task}  {_rewards(result.rewards)} (recorded: {_rewards(recording.rewards)})"))
    if not quiet:
        out.print(f"Requests to a provider: {done.provider_requests}")
        out.print(Text(f"Results: {result.rollout_dir}"), soft_wrap=True)


def _rewards(rewards: Any) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in (rewards or {}).items()) or "no reward"
