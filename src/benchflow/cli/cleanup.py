"""`bench cleanup` (also `bench sandbox cleanup`): remove what dead processes left, and nothing that is not ours.

Sandboxes of live owners stay unless --all is given, images and caches stay unless --images is given. A backend that
does not work here is passed over with a remark.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchflow.cli.apps import new_app
from benchflow.cli.console import console, err_console, print_json
from benchflow.errors import SandboxError
from benchflow.job.size import human_size, tree_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchflow.sandbox.base import Backend, SandboxInfo

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
"""Seconds in the units that --older-than takes."""

JOBS_SHOWN = 10
"""The largest jobs that are named; the rest are counted."""

CHECK_TIMEOUT = 20.0
"""Seconds a backend gets to answer before it is passed over."""

app = new_app()


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was removed (or would be) from one backend, and what its caches hold afterwards."""

    backend: str
    skipped: str = ""
    sandboxes: Sequence[SandboxInfo] = ()
    images: Sequence[str] = ()
    disk_use: Mapping[str, int] = field(default_factory=dict)


def parse_age(text: str) -> float:
    """Seconds of `90`, `45s`, `30m`, `2h`, `7d` or `1w`. Raises typer.BadParameter, with an example, for others."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw]?)\s*", text)
    if not match:
        raise typer.BadParameter(f"{text!r} is not a time span: write 30m, 2h or 7d")
    return float(match[1]) * UNITS[match[2] or "s"]


async def usable_backends() -> tuple[list[Backend], list[Cleaned]]:
    """The backends that work here, and those that do not with the reason."""
    from benchflow.sandbox.registry import backend_names, get_backend

    usable: list[Backend] = []
    skipped: list[Cleaned] = []
    for name in backend_names():
        backend = get_backend(name)
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                await backend.check()
        except SandboxError as error:
            skipped.append(Cleaned(name, skipped=error.message))
        except TimeoutError:
            skipped.append(Cleaned(name, skipped=f"{name}: no answer within {CHECK_TIMEOUT:g} s"))
        else:
            usable.append(backend)
    return usable, skipped


async def clean(*, everything: bool, images: bool, older_than: float, dry_run: bool) -> list[Cleaned]:
    """Reap every backend that works here, and prune its images if wanted."""
    from benchflow.sandbox.registry import close_backends

    try:
        usable, done = await usable_backends()
        for backend in usable:
            sandboxes = await backend.reap(everything=everything, older_than=older_than, dry_run=dry_run)
            pruned = await backend.prune(older_than=older_than, dry_run=dry_run) if images else ()
            done.append(Cleaned(backend.name, "", sandboxes, pruned, await backend.disk_use()))
        return done
    finally:
        await close_backends()


def _report(done: list[Cleaned], *, dry_run: bool) -> None:
    verb = "would remove" if dry_run else "removed"
    out = console()
    for each in done:
        if each.skipped:
            err_console().print(f"skipped {each.skipped}", markup=False, soft_wrap=True)
            continue
        for info in each.sandboxes:
            of = f" of {info.job}/{info.rollout}" if info.job or info.rollout else ""
            out.print(f"{verb} sandbox {info.id} ({each.backend}, {info.state}){of}", markup=False, soft_wrap=True)
        for name in each.images:
            out.print(f"{verb} {name} ({each.backend})", markup=False, soft_wrap=True)
        if not each.sandboxes and not each.images:
            out.print(f"{each.backend}: nothing to remove")
        for name, size in each.disk_use.items():
            out.print(f"{each.backend}: {name} {human_size(size)}", markup=False, soft_wrap=True)


def _jobs_use(jobs_dir: Path) -> dict[str, int]:
    """Bytes of each job in a folder, the largest first; nothing when there are none."""
    from benchflow.job.store import is_job

    jobs = [folder for folder in jobs_dir.iterdir() if folder.is_dir() and is_job(folder)] if jobs_dir.is_dir() else []
    sizes = {str(job): tree_bytes(job) for job in jobs}
    return dict(sorted(sizes.items(), key=lambda one: -one[1]))


def _report_jobs(jobs: dict[str, int]) -> None:
    out = console()
    for name, size in list(jobs.items())[:JOBS_SHOWN]:
        out.print(f"job {name}: {human_size(size)}", markup=False, soft_wrap=True)
    if len(jobs) > 1:
        out.print(f"{len(jobs)} jobs together: {human_size(sum(jobs.values()))}")


@app.command(epilog="Examples: bench cleanup --dry-run · bench cleanup --images --older-than 7d")
def cleanup(
    everything: Annotated[
        bool, typer.Option("--all", help="Also stop and remove sandboxes whose owner still runs.")
    ] = False,
    images: Annotated[bool, typer.Option("--images", help="Also remove images and caches that nothing uses.")] = False,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Only what is at least this old: 30m, 2h, 7d.")
    ] = "0",
    jobs_dir: Annotated[Path, typer.Option(help="Whose size to show; jobs are never removed.")] = Path("jobs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Remove sandboxes whose owner died; show what jobs and caches hold."""
    age = parse_age(older_than)
    done = asyncio.run(clean(everything=everything, images=images, older_than=age, dry_run=dry_run))
    jobs = _jobs_use(jobs_dir)
    if as_json:
        print_json({"dry_run": dry_run, "backends": [asdict(each) for each in done], "jobs": jobs})
    else:
        _report(done, dry_run=dry_run)
        _report_jobs(jobs)
