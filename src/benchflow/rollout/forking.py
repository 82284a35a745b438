"""How a rollout is continued in branches, and how it goes on as one of them.

A branch is a copy of the rollout object with a fork of its sandbox, and with everything anew that is one sandbox's: the
agents' processes and sessions, their way to the model, the record. These functions are friends of `Rollout`: they set
what nobody else may.
"""

# ruff: noqa: SLF001
from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from benchflow.errors import AgentError, BenchflowError, BudgetSpent, VerifierError
from benchflow.rollout.branch import Start, Tried, best_of, branch_config, branch_plan, entry
from benchflow.rollout.record import Record

if TYPE_CHECKING:
    from benchflow.rollout.lifecycle import Rollout
    from benchflow.rollout.scene import Step


async def branch_off[R: Rollout](rollout: R, start: Start) -> R:
    """A branch of `rollout`, ready to be spoken to, and listed in its result; it ends with it at the latest.

    Raises ConfigError when its model cannot be reached, SandboxError when the sandbox cannot be forked.
    """
    memory, mine = rollout.play.memory, rollout.record
    branch = copy.copy(rollout)
    branch.config = branch_config(rollout.config, start, mine.folder.path, rollout.play)
    branch._plan = plan = branch_plan(rollout.plan, rollout._current_act, start)
    branch._act = plan.acts[0]
    branch._observer, branch._play, branch._branches = None, None, []
    branch._record = record = Record(branch.config, plan, None)
    record.job = mine.job
    branch._location = rollout.location.branch(branch.config, plan, record)
    branch._entry = entry(start, record.folder.path, len(mine.events()))
    mine.result.branches.append(branch._entry)
    rollout._branches.append(branch)
    await branch.start()
    await branch.install_agent()
    branch.play.recall(memory)
    return branch


async def play_best(rollout: Rollout, turn: Step, prompt: str, source: str) -> None:
    """Play a turn in several branches and go on as the best. Raises AgentError or BudgetSpent as that one did."""

    async def attempt(number: int) -> Tried[Rollout]:
        branch = await branch_off(rollout, Start(turn.role, prompt, turn.scene))
        return Tried(branch, number, *await _attempt(branch, source))

    async def drop(branch: Rollout) -> None:
        await branch.cleanup()

    with rollout.record.phase("agent_execution"):
        best = await best_of(turn.best_of, rollout.config.branch_concurrency, attempt, drop)
    await _become(rollout, best.branch)
    if best.error:
        raise best.error


async def _attempt(branch: Rollout, source: str) -> tuple[float | None, BenchflowError | None]:
    """Play the one turn of a branch and score where it stands: the reward, and what went wrong."""
    act, wrong = branch._current_act, None
    try:
        await branch.play.turn(act, act.turns[0], act.turns[0].prompt, source)
    except (AgentError, BudgetSpent) as error:
        wrong = error
        branch.record.failed(error)
    try:
        branch._scored(await branch.soft_verify(), ())
    except BenchflowError as error:
        branch.record.failed(error)
        return None, wrong or (None if isinstance(error, VerifierError) else error)
    return branch.record.result.reward, wrong


async def _become(rollout: Rollout, branch: Rollout) -> None:
    """Go on as the branch: where it is and with its sessions, what was said there being said here."""
    left, there = rollout.location, branch.location
    branch.record.metered(there.wire.usage if there.wire else None)
    rollout.record.continue_with(branch.record)
    there.succeed(left)
    rollout._location, branch._location = there, None
    rollout.play.become(branch.play)
    branch._entry["kept"] = True
    try:
        await branch.cleanup()
        rollout._branches.remove(branch)
    finally:
        await left.close()
