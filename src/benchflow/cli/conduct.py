"""Runs a job for the command line: checks it, shows it while it runs, prints what came out, and says how it ended."""

from __future__ import annotations

import asyncio
import os
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from benchflow.cli.console import console, err_console, print_json
from benchflow.cli.dashboard import Dashboard, Lines, Single
from benchflow.cli.loop import INTERRUPTED
from benchflow.cli.report import print_plan
from benchflow.errors import ConfigError
from benchflow.job.junit import junit_xml
from benchflow.job.metrics_text import score_line, usage_line
from benchflow.sandbox.registry import close_backends

if TYPE_CHECKING:
    from benchflow.job.job import Job
    from benchflow.job.resume import JobPlan
    from benchflow.job.row import Row
    from benchflow.job.summary import JobResult

PLANNED_SHOWN = 40
"""Measurements that a dry run lists; the rest are counted, and all of them are in its JSON."""


@dataclass(frozen=True, slots=True)
class Output:
    """How a command shows what it does, and what it makes of the score."""

    dry_run: bool = False
    quiet: bool = False
    as_json: bool = False
    fail_under: float | None = None
    junit: Path | None = None


async def conduct(job: Job, output: Output) -> int:
    """The exit code: 0 when everything ran, whatever the score; 1 for errors; 130 when it was interrupted."""
    if output.junit:
        _check_place(output.junit)
    try:
        plan = await job.plan()
        if output.dry_run:
            _print_plan(plan, as_json=output.as_json)
            return 0
        view = _view(plan, output)
        job.observer = view
        with view or nullcontext():
            result = await job.run()
    except asyncio.CancelledError:
        if job.job_dir:
            _say_how_to_resume(job.job_dir)
        raise
    finally:
        await close_backends()
    left_out = plan.regrades.left_out if plan.regrades else ()
    for line in left_out:
        err_console().print(Text(f"not graded again: {line}"), soft_wrap=True)
    if output.junit:
        _write(output.junit, junit_xml(result))
    if output.as_json:
        print_json(result.to_json())
    else:
        _print_outcome(result, quiet=output.quiet)
    return exit_code(result, output.fail_under) or int(bool(left_out))


def exit_code(result: JobResult, fail_under: float | None) -> int:
    if result.state == "interrupted":
        return INTERRUPTED
    if result.state == "halted" or result.errors:
        return 1
    return int(fail_under is not None and result.score < fail_under)


def _view(plan: JobPlan, output: Output) -> Dashboard | Lines | Single | None:
    if output.quiet or output.as_json:
        return None
    err_console().print(Text(plan.lock.reason), soft_wrap=True)
    if plan.lock.total == 1:
        return Single()
    return Dashboard(plan) if err_console().is_terminal else Lines()


def _print_plan(plan: JobPlan, *, as_json: bool) -> None:
    if as_json:
        print_json({**plan.lock.to_json(), "to_do": len(plan.to_do)})
        return
    lock, out = plan.lock, console()
    first = plan.measurements.get(lock.measurements[0].id)
    if lock.total > 1 or first is None:
        from rich.table import Table

        out.print(Text(f"{lock.total} rollouts, {len(plan.to_do)} to do, in {lock.sandbox} ({lock.reason})"))
        table = Table("task", "agent", "model", "attempts", "measurement", box=None, pad_edge=False)
        for one in lock.measurements[:PLANNED_SHOWN]:
            table.add_row(Text(one.task), Text(one.agent), Text(one.model or ""), str(one.attempts), one.id)
        out.print(table)
        if (more := len(lock.measurements) - PLANNED_SHOWN) > 0:
            out.print(f"and {more} more (--json lists all)")
    if first is not None:
        print_plan(first.plan)


def _print_outcome(result: JobResult, *, quiet: bool) -> None:
    out, remarks = console(), err_console()
    for row in result.rollouts:
        _print_row(row, quiet=quiet, alone=len(result.rollouts) == 1)
    scores = result.scores
    out.print(f"Score: {scores.passed}/{scores.total}")
    if not quiet:
        if scores.total > 1 or scores.lost:
            out.print(score_line(scores))
        if any(value is not None for value in result.usage.values()):
            out.print(f"Usage: {usage_line(result.usage)}")
        out.print(Text(f"Results: {_folder(result)}"), soft_wrap=True)
    if result.message:
        remarks.print(Text(f"stopped: {result.message}"), soft_wrap=True)
    if result.state in ("interrupted", "halted"):
        _say_how_to_resume(result.job_dir)


def _say_how_to_resume(job_dir: Path) -> None:
    err_console().print(Text(f"resume with: bench eval resume {job_dir}"), soft_wrap=True)


def _folder(result: JobResult) -> Path:
    return result.rollouts[0].rollout_dir if result.total == 1 and result.rollouts else result.job_dir


def _print_row(row: Row, *, quiet: bool, alone: bool) -> None:
    if alone and not quiet:
        from benchflow.view.load import read_result

        notes = read_result(row.rollout_dir).get("notes") if row.rollout_dir.name else None
        for note in notes or ():
            err_console().print(Text(f"note: {note}"), soft_wrap=True)
    if row.error:
        where = "" if alone else f"{row.task}: "
        text = f"{where}{row.error.boundary} error in {row.error.phase}: {row.error.message}"
        err_console().print(Text(text), soft_wrap=True)
    word, style = ("PASS", "green") if row.passed else ("FAIL", "red") if row.scored else ("LOST", "yellow")
    rewards = ", ".join(f"{name} {value:g}" for name, value in (row.rewards or {}).items()) or "no reward"
    which = row.task if row.attempt == 1 else f"{row.task} #{row.attempt}"
    player = "" if alone else f"  {row.agent} {row.model or ''}".rstrip()
    suspect = "  (suspect)" if row.passed and row.trust != "trusted" else ""
    line = Text.assemble((f"[{word}]", style), f" {which}{player}  {rewards}{suspect}")
    console().print(line, soft_wrap=True)


def _check_place(file: Path) -> None:
    """A report that cannot be written is said before anything is started."""
    place = file if file.exists() else next(folder for folder in file.absolute().parents if folder.exists())
    if file.is_dir() or not os.access(place, os.W_OK) or not (place == file or place.is_dir()):
        raise ConfigError(f"--junit {file}: cannot be written there", hint="name a file in a folder of yours")


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from None
