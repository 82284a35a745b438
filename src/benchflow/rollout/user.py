"""A user in Python: a callback that decides each next prompt from what came of the last one.

    setup(instruction, solution)                     once
    run(round, instruction, round_result) -> prompt  for each round, counted from 0; None stops

One agent keeps its session over all rounds. After each round the state is verified on a fork, so that the callback
sees what the final verification would say and the agent sees nothing of it. The solution is read on the host and given
to the callback alone. A callback that fails ends the loop; the final verification still runs.
"""

# ruff: noqa: A002 - `round` is what users call it
from __future__ import annotations

import asyncio
import inspect
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchflow.errors import ConfigError, UserError
from benchflow.verify.reward import is_pass, main_reward

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from benchflow.rollout.config import RolloutConfig
    from benchflow.task.task import Step, Task
    from benchflow.trajectory.events import Event

MAX_USER_ROUNDS = 5
"""Rounds that a user gets, unless the rollout says otherwise."""


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What came of one round: the events of it alone, and what the verifier said of the state it left.

    `verifier_output` is the end of what the verifier printed. Where it could not score, `rewards` is None and
    `verifier_error` says why.
    """

    round: int
    trajectory: Sequence[Event] = field(default_factory=list)
    rewards: dict[str, float] | None = None
    verifier_output: str | None = None
    verifier_error: str | None = None
    n_tool_calls: int = 0

    @property
    def reward(self) -> float | None:
        return main_reward(self.rewards)

    @property
    def passed(self) -> bool:
        return is_pass(self.rewards)


class BaseUser:
    """What a user does; `run` is to be overridden. Both methods may be plain functions or coroutines.

    Plain ones run in a thread, so that one which waits holds up no other rollout.
    """

    async def setup(self, instruction: str, solution: str | None = None) -> None:
        """Called once, before the first round. `solution` is the task's solve script, with `oracle_access` only."""

    async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:
        """The prompt of this round, or None to stop. `round_result` is that of the round before; None in the first."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it asks: it has no run()")


type UserFunction = Callable[[int, str, RoundResult | None], str | Awaitable[str | None] | None]


class FunctionUser(BaseUser):
    """A user made of one function, plain or async, with the arguments of `run`."""

    def __init__(self, fn: UserFunction) -> None:
        self._fn = fn

    async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:
        answer: str | None = await _call(self._fn, round, instruction, round_result)
        return answer


class PassthroughUser(BaseUser):
    """Says the task's instruction and nothing more: the same as no user, with a verification after its round."""

    async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:
        del round_result
        return instruction if round == 0 else None


async def converse(
    user: BaseUser,
    instruction: str,
    solution: str | None,
    rounds: int,
    play: Callable[[int, str], Awaitable[RoundResult]],
    *,
    asking: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Let `user` talk for at most `rounds` rounds, each played by `play`; `asking` is entered while it is asked.

    Raises UserError when the callback fails or answers neither a prompt nor None, and whatever `play` raises.
    """
    with asking():
        await _asked(user, "setup()", user.setup, instruction, solution)
    last: RoundResult | None = None
    for number in range(rounds):
        where = f"run() in round {number}"
        with asking():
            prompt = await _asked(user, where, user.run, number, instruction, last)
            if prompt is None:
                return
            if not isinstance(prompt, str) or not prompt.strip():
                raise UserError(
                    f"the user {type(user).__name__} answered {prompt!r:.100} from {where}",
                    hint="return a prompt, or None to stop",
                )
        last = await play(number, prompt)


async def _asked(user: BaseUser, where: str, function: Callable[..., Any], *arguments: object) -> Any:
    try:
        return await _call(function, *arguments)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise UserError(f"the user {type(user).__name__} failed in {where}: {said}") from error


async def _call(function: Callable[..., Any], *arguments: object) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    answer, error = await asyncio.to_thread(_tried, function, arguments)
    if error is not None:
        raise error
    return await answer if inspect.isawaitable(answer) else answer


def _tried(function: Callable[..., Any], arguments: tuple[object, ...]) -> tuple[Any, Exception | None]:
    """What it returns or raises. A StopIteration cannot leave a thread: whoever awaits it would wait for ever."""
    try:
        return function(*arguments), None
    except Exception as error:  # noqa: BLE001 - raised again by the caller
        return None, error


def check_user(config: RolloutConfig, task: Task) -> None:
    """Raises ConfigError with everything that keeps the rollout's user from doing its part."""
    if found := list(_problems(config, task)):
        raise ConfigError("; ".join(found))


def _problems(config: RolloutConfig, task: Task) -> Iterator[str]:
    try:
        driver = config.driver
    except ConfigError:
        return  # A loop that cannot be read is told of where the scenes are.
    if not _whole(config.max_user_rounds):
        yield f"max_user_rounds is {config.max_user_rounds!r}; a whole number, 1 or more, is expected"
    if driver is None:
        return
    if config.user is not None and config.loop:
        yield f"user and loop exclude each other: both decide what comes next ({config.loop!r})"
    if not callable(getattr(driver[0], "run", None)) or not callable(getattr(driver[0], "setup", None)):
        yield f"user: {driver[0]!r:.100} is no BaseUser; a function is given as FunctionUser(function)"
    whose = "a user" if config.user is not None else f"loop {config.loop!r}"
    roles = {role.name for scene in config.scenes for role in scene.roles}
    if len(config.scenes) > 1 or len(roles) > 1:
        yield f"{whose} speaks to one role in one scene; here are {len(config.scenes)} scenes with {len(roles)} roles"
    elif any(len(scene.turns) > 1 or scene.max_rounds or scene.stop_when for scene in config.scenes):
        yield f"{whose} decides what is said after the first prompt: give the scene one turn, and no rounds of its own"
    if config.user is not None and config.oracle_access:
        for step in task.steps or (None,):
            if not (path := _solve_script(task, step)).is_file():
                yield f"oracle_access: {path} does not exist, so there is no solution to tell"


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def solution_of(task: Task, step: Step | None) -> str:
    """The text of the solve script."""
    return _solve_script(task, step).read_text(encoding="utf-8", errors="replace")


def _solve_script(task: Task, step: Step | None) -> Path:
    return (step.solution_dir if step else task.solution_dir) / task.solve_script
