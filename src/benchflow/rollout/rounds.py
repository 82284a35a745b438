"""The rounds of a user, played: its prompt is said, the state is verified on a fork, and it is told what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchflow.errors import VerifierError
from benchflow.rollout.user import RoundResult, converse, solution_of
from benchflow.trajectory.events import event

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.rollout.plan import Act
    from benchflow.rollout.play import Play, Setting
    from benchflow.rollout.user import BaseUser

OUTPUT_KEPT = 64 * 1024
"""Bytes of what the verifier printed, from its end, that a user is told."""


async def play_rounds(user: BaseUser, rounds: int, play: Play, setting: Setting, act: Act) -> None:
    """Let the user talk with the act's one role. What came of each round is in the record.

    Raises UserError when the user fails, AgentError or ModelError when the agent or its model does, and SandboxError.
    A verifier that cannot score is told to the user and raises nothing.
    """
    turn, task = act.turns[0], setting.plan.task

    async def one(number: int, prompt: str) -> RoundResult:
        setting.record.event(event("note", about="round", data={"round": number}))
        before = len(setting.record.events())
        await play.turn(act, turn, prompt, "user")
        found = await check_round(setting, number, before)
        setting.record.round_ended(act, found, prompt)
        return found

    await setting.location.backstage.open_act(act)
    solution = solution_of(task, act.step) if setting.config.oracle_access else None
    await converse(user, turn.prompt, solution, rounds, one, asking=lambda: setting.record.phase("user"))


async def check_round(setting: Setting, number: int, before: int, *, verify: bool = True) -> RoundResult:
    """What came of a round that began `before` so many events; its score, if it is to be verified."""
    events = setting.record.events()[before:]
    folder = setting.record.scratch_folder()
    rewards, error = None, None
    try:
        rewards = (await setting.soft_verify()).rewards if verify else None
    except VerifierError as failed:
        error = str(failed)
    return RoundResult(
        round=number,
        trajectory=events,
        rewards=rewards,
        verifier_output=_tail(folder / "verifier" / "test-stdout.txt"),
        verifier_error=error,
        n_tool_calls=sum(one["type"] == "tool_call" for one in events),
    )


def _tail(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - OUTPUT_KEPT))
            return opened.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return None
