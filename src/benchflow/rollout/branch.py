"""Branches: one state of a rollout, continued several times, each in a sandbox of its own.

What continues is the files: a branch begins in a copy-on-write fork. No process does, and an agent's session cannot be
forked in general, so a branch opens a new one and puts what was said so far in front of its first prompt. A branch is
a rollout of its own with a folder below its parent's; its trajectory begins where the parent's was when it was forked.
"""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchflow.agent.credentials import read_dotenv
from benchflow.errors import ConfigError
from benchflow.rollout.plan import cast_role
from benchflow.rollout.scene import Scene, Turn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from benchflow.errors import BenchflowError
    from benchflow.rollout.config import RolloutConfig
    from benchflow.rollout.plan import Act, Plan
    from benchflow.rollout.play import Play
    from benchflow.rollout.result import RolloutResult
    from benchflow.rollout.scene import Role, Step
    from benchflow.trajectory.events import Event

FOLDER = "branches"
"""Where, in a rollout's folder, those of its branches are."""

TRANSCRIPT_LIMIT = 40_000
"""Characters of what was said so far, from its end, that a branch is told."""

END = "That is all that was said and done so far."
"""The line after them, by which they are left out when they are told again; what is quoted is never such a line."""

OUTPUT_TOLD = 2_000
"""Characters of one tool's output, from its end, that are among them."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a branch goes on: which role is spoken to, with which model, and what it is asked."""

    role: Role
    prompt: str
    scene: str


def starts(
    turn: Step, role: Role, n: int | None, prompts: Sequence[str | None] | None, models: Sequence[str] | None
) -> list[Start]:
    """What each of n branches does; without n, as many as there are prompts or models.

    A prompt of None is that of `turn`. Raises ConfigError when the numbers do not fit.
    """
    counts = {len(given) for given in (prompts, models) if given is not None} | ({n} if n is not None else set())
    if len(counts) != 1 or min(counts) < 1:
        raise ConfigError("fork: n, prompts and models must say the same number of branches, 1 or more")
    count = counts.pop()
    said = [turn.prompt if prompt is None else prompt for prompt in prompts or [None] * count]
    played = [replace(role, model=model) for model in models] if models is not None else [role] * count
    return [Start(one, prompt, turn.scene) for one, prompt in zip(played, said, strict=True)]


def branch_config(config: RolloutConfig, start: Start, folder: Path, play: Play) -> RolloutConfig:
    """The config of a branch below `folder`: one turn, and the time that is left."""
    scene = Scene([start.role], [Turn(start.role.name, start.prompt)], start.scene)
    return replace(
        config,
        scenes=[scene],
        user=None,
        loop=None,
        agent_timeout=play.time_left,
        agent_working_timeout=play.working_left,
        jobs_dir=folder,
        job_name=FOLDER,
        labels={},
    )


def branch_plan(plan: Plan, act: Act, start: Start) -> Plan:
    """The plan of a branch: its act has one turn. Raises ConfigError when its model cannot be reached."""
    players = {role: player for role, player in plan.players.items() if role.name != start.role.name}
    known = plan.players.get(start.role)
    players[start.role] = known or cast_role(start.role, read_dotenv(Path.cwd()))
    turn = replace(
        act.turns[0],
        scene=start.scene,
        role=start.role,
        prompt=start.prompt,
        opens_session=True,
        best_of=1,
    )
    return replace(plan, players=players, acts=(replace(act, turns=(turn,)),))


def entry(start: Start, folder: Path, after_events: int) -> dict[str, Any]:
    """A branch as its parent's result lists it, before it ended: it began after so many of the parent's events."""
    began = {"folder": f"{FOLDER}/{folder.name}", "after_events": after_events}
    asked = {"role": start.role.name, "model": start.role.model, "prompt": start.prompt}
    return {**began, **asked, "rewards": None, "reward": None, "error": None, "kept": False, "branches": []}


def outcome(result: RolloutResult) -> dict[str, Any]:
    """What of an entry is known when the branch has ended."""
    error = dataclasses.asdict(result.error) if result.error else None
    return {"rewards": result.rewards, "reward": result.reward, "error": error, "branches": result.branches}


# -- what was said so far ------------------------------------------------------------------------------------------


def prefaces(events: Sequence[Event], roles: Iterable[str]) -> dict[str, str]:
    """What a new session of each role is told of the one it had; an event without an actor is the only role's."""
    found = {role: transcript(one for one in events if one.get("actor", role) == role) for role in roles}
    return {role: told for role, told in found.items() if told}


def transcript(events: Iterable[Event]) -> str:
    """What a new session is told of an earlier one; empty when nothing was asked in it."""
    lines: list[str] = []
    for event in events:
        lines += _told(event)
    if not any(line.startswith("You were asked:") for line in lines):
        return ""
    text = "\n".join(lines)
    if len(text) > TRANSCRIPT_LIMIT:
        text = "> (the beginning is left out)\n" + text[-TRANSCRIPT_LIMIT:].partition("\n")[2]
    return (
        "You go on with work that you began before, in the same workspace. Its files are as you left them; its "
        f"processes have ended. This is what was said and done so far:\n\n{text}\n\n{END}"
    )


def _told(event: Event) -> list[str]:
    match event["type"]:
        case "prompt":
            return ["You were asked:", *_quoted(str(event.get("text")).rpartition(f"{END}\n\n")[2])]
        case "message" if event.get("role") != "user":
            return ["You said:", *_quoted(event.get("text"))]
        case "tool_call":
            return ["You called a tool:", *_quoted(event.get("title"))]
        case "tool_call_update" if event.get("output"):
            return ["It gave:", *_quoted(str(event["output"])[-OUTPUT_TOLD:])]
    return []


def _quoted(text: object) -> list[str]:
    return [f"> {line}" for line in str(text or "").splitlines()]


# -- the best of several -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tried[B]:
    """A branch that was played: its reward, None where it could not be scored, and what went wrong."""

    branch: B
    number: int
    reward: float | None = None
    error: BenchflowError | None = None

    @property
    def rank(self) -> tuple[bool, float, bool, int]:
        """Scored before not scored, then by reward, then those that ended well, then the first."""
        return self.reward is not None, self.reward or 0.0, self.error is None, -self.number


async def best_of[B](
    n: int,
    at_once: int,
    attempt: Callable[[int], Awaitable[Tried[B]]],
    drop: Callable[[B], Awaitable[None]],
) -> Tried[B]:
    """Play n branches, `at_once` at a time; returns the best and drops every other as soon as it is not."""
    slots = asyncio.Semaphore(at_once)
    best: list[Tried[B]] = []

    async def one(number: int) -> None:
        async with slots:
            best.append(await attempt(number))
            while len(best) > 1:
                worse = min(best, key=lambda tried: tried.rank)
                best.remove(worse)
                await drop(worse.branch)

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(n):
                group.create_task(one(number))
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return best[0]
