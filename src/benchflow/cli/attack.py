"""`bench tasks attack`: which cheats would a task's verifier fall for, and on which isolation level."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchflow.cli.console import print_json

if TYPE_CHECKING:
    from benchflow.testing.attack import Cheat, Level, Outcome

EPILOG = """
Each cheat is run in a sandbox of its own, in the agent's place, and the task is then scored in three ways: on a fork
(what every rollout does), in a fresh sandbox with a copy of the workspace, and in place, in the agent's own sandbox
with nothing cleaned (what a harness without isolation does). Exits 1 when a cheat pays on one of the first two.

Examples:

\b
  bench tasks attack my-task
  bench tasks attack my-task --root --sandbox docker
  bench tasks attack my-task --only 'pytest-*' --json
"""

SIGNS = {
    "?": "a pass that its result calls suspect, which is not counted as paid",
    "-": "no reward at all: the verifier failed or was kept from scoring",
}

ADVICE = {
    "python start-up": "run Python with -I in test.sh, and name the interpreter by its absolute path",
    "pytest": "run pytest with -c /dev/null --rootdir=/tests --confcutdir=/tests -p no:cacheprovider",
    "shell": "call tools by absolute paths, and do not start a login shell",
    "tool configuration": "give curl -q, git -c core.hooksPath=/dev/null, and pip --isolated",
    "loader": "run the verifier where the agent was not root",
    "time": "never score beside the agent's processes",
    "reward files": "write the reward last, and only from the verifier's own verdict",
    "answers": "open what the agent left without following links, and compare contents, not paths",
    "privilege": "do not run programs that the agent could replace",
    "reach": "give the task no-network, and mount nothing of the host",
    "resources": "set memory, pids and storage limits in [environment]",
}


def attack(
    task: Annotated[Path, typer.Argument(help="The task.", metavar="DIR", show_default=False)],
    sandbox: Annotated[str, typer.Option("--sandbox", "-e", help="Where to run: auto, docker, local.")] = "auto",
    root: Annotated[bool, typer.Option("--root", help="Cheat as root instead of as the sandbox user.")] = False,
    only: Annotated[str, typer.Option("--only", help="A glob of cheats' names.", metavar="GLOB")] = "*",
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Sandboxes at the same time.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
) -> None:
    """Run the catalogue of cheats against a task, and say which of them its verifier would fall for."""
    from fnmatch import fnmatchcase

    from benchflow.cli.loop import run
    from benchflow.errors import ConfigError
    from benchflow.testing.attack import catalogue

    chosen = [one for one in catalogue() if fnmatchcase(one.name, only) and (root or not one.needs_root)]
    if not chosen:
        raise ConfigError(f"no cheat is called {only!r}", hint=f"there are: {', '.join(c.name for c in catalogue())}")
    raise typer.Exit(run(_attack(task, chosen, sandbox, concurrency, root=root, as_json=as_json)))


async def _attack(
    task: Path, chosen: "list[Cheat]", sandbox: str, concurrency: int, *, root: bool, as_json: bool
) -> int:
    from benchflow.sandbox.registry import backends_in_use

    async with backends_in_use():
        found = await _attack_all(task, chosen, sandbox, None if root else "agent", concurrency, quiet=as_json)
    fallen = [name for name, row in found.items() if row["fork"].paid or row["fresh"].paid]
    if as_json:
        print_json(
            {"task": str(task), "root": root, "fallen": fallen, "cheats": [_json(row) for row in found.values()]}
        )
    else:
        _print(found, fallen)
    return 1 if fallen else 0


async def _attack_all(
    task: Path, cheats: "list[Cheat]", sandbox: str, user: str | None, concurrency: int, *, quiet: bool
) -> "dict[str, dict[Level, Outcome]]":
    from typing import get_args

    from benchflow.errors import ConfigError
    from benchflow.sandbox.registry import choose_backend
    from benchflow.testing.attack import Cheat, Level
    from benchflow.testing.attack import attack as try_cheat

    backend, _ = await choose_backend(sandbox)
    places = asyncio.Semaphore(concurrency)
    found: dict[str, dict[Level, Outcome]] = {cheat.name: {} for cheat in cheats}

    async def one(cheat: Cheat, level: Level) -> None:
        async with places:
            found[cheat.name][level] = await try_cheat(cheat, task, backend=backend.name, user=user, level=level)
        if not quiet:
            typer.echo(f"{cheat.name}  {level}: {found[cheat.name][level].word}", err=True)

    nothing = await try_cheat(Cheat("nothing", "", "", ":"), task, backend=backend.name, user=user)
    if nothing.paid or nothing.rewards is None:
        why = "it passes" if nothing.paid else f"it cannot be scored: {nothing.error}"
        raise ConfigError(f"{task}: without any work at all {why}", hint="mend that first")
    async with asyncio.TaskGroup() as group:
        for cheat in cheats:
            for level in get_args(Level):
                group.create_task(one(cheat, level))
    return found


def _json(levels: "dict[Level, Outcome]") -> dict[str, Any]:
    from typing import get_args

    from benchflow.testing.attack import Level

    cheat = next(iter(levels.values())).cheat
    rows = {
        level: {
            "rewards": one.rewards,
            "trusted": one.trusted,
            "paid": one.paid,
            "level": one.level,
            "error": one.error,
        }
        for level, one in ((level, levels[level]) for level in get_args(Level))
    }
    return {"name": cheat.name, "family": cheat.family, "what": cheat.what, "levels": rows}


def _print(found: "dict[str, dict[Level, Outcome]]", fallen: list[str]) -> None:
    from typing import get_args

    from rich.table import Table

    from benchflow.cli.console import console
    from benchflow.testing.attack import Level

    levels = get_args(Level)
    table = Table("cheat", "family", *levels, box=None, title_justify="left")
    for name, row in found.items():
        family = next(iter(row.values())).cheat.family
        words = [f"[bold red]{one.word} paid[/]" if one.paid else one.word for one in (row[level] for level in levels)]
        table.add_row(name, family, *words)
    console().print(table)
    ends = {one.word[-1] for row in found.values() for one in row.values()}
    for sign, meaning in SIGNS.items():
        if sign in ends:
            typer.echo(f"  {sign}  {meaning}")
    naive = [name for name, row in found.items() if row["in-place"].paid]
    typer.echo(f"\n{len(fallen)} of {len(found)} cheats pay where we score; {len(naive)} would pay in place.")
    families = {next(iter(found[name].values())).cheat.family for name in [*fallen, *naive]}
    for family in sorted(families):
        typer.echo(f"  {family}: {ADVICE[family]}")
