"""Ready-made ways to go on after the first answer: loops by name, and a user who is played by a model.

A loop is written `name:times`, as in `self-review:2`:

- `self-review:k` asks the agent k more times, in the same session, to look over its own work;
- `verify-retry:k` shows the agent what the verifier said and lets it try again, at most k times, until it passes.

Both are made of what is public: the first of turns, the second of a user.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from benchflow.errors import ConfigError
from benchflow.rollout.scene import Role, Scene, Turn
from benchflow.rollout.user import BaseUser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchflow.rollout.user import RoundResult

LoopName = Literal["self-review", "verify-retry"]

REVIEW = (
    "Review your solution against the original instruction. Run it, or its tests, if you can. "
    "Look for mistakes and for cases that you did not think of, and fix what you find."
)
RETRY = "The result was checked and does not pass yet. Find out why, and fix it. This is what the check said:\n\n"

OUTPUT_SHOWN = 8000
"""Characters of the verifier's output, from its end, that `verify-retry` shows."""

USER_ROUNDS = 3
"""How often a simulated user speaks, unless said otherwise."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop by name, and how often it goes round after the first answer."""

    name: LoopName
    times: int


def parse_loop(text: str) -> Loop:
    """`name` or `name:times`; once, when nothing is said. Raises ConfigError."""
    name, colon, times = str(text).partition(":")
    names: tuple[LoopName, ...] = get_args(LoopName)
    known = next((one for one in names if one == name), None)
    if known is None:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the loops are: {', '.join(names)}"
        raise ConfigError(f"loop: there is none called {name!r}", hint=hint)
    if colon and not (times.isascii() and times.isdigit() and int(times) >= 1):
        raise ConfigError(f"loop: {text!r} does not say how often", hint=f"write {known}:2, say")
    return Loop(known, int(times) if colon else 1)


def looped_scenes(scenes: Sequence[Scene], loop: str | None) -> Sequence[Scene]:
    """The scenes with the turns that the loop adds to the last one. Raises ConfigError when that cannot be."""
    found = parse_loop(loop) if loop else None
    if found is None or found.name != "self-review" or not scenes:
        return scenes
    last = scenes[-1]
    if len(last.roles) != 1:
        raise ConfigError(f"loop: {found.name} is for a scene with one role; {last.name!r} has {len(last.roles)}")
    reviews = [Turn(last.roles[0].name, REVIEW)] * found.times
    return [*scenes[:-1], replace(last, turns=[*last.turns, *reviews])]


def loop_user(loop: str | None) -> tuple[BaseUser, int] | None:
    """The user that the loop is made of and the rounds it takes; None when it needs no user. Raises ConfigError."""
    found = parse_loop(loop) if loop else None
    return (VerifyRetry(), found.times + 1) if found and found.name == "verify-retry" else None


class VerifyRetry(BaseUser):
    """Gives the instruction, then the verifier's words, until the result passes."""

    async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:  # noqa: A002 - as in BaseUser
        del round
        if round_result is None:
            return instruction
        if round_result.passed:
            return None
        said = (round_result.verifier_output or "").strip()[-OUTPUT_SHOWN:]
        return RETRY + "\n".join(part for part in (said, round_result.verifier_error) if part)


def simulated_user(
    persona: str,
    goal: str,
    *,
    agent: str,
    model: str | None = None,
    user_agent: str | None = None,
    user_model: str | None = None,
    rounds: int = USER_ROUNDS,
    oracle_access: bool = False,
    name: str = "interactive-assist",
) -> Scene:
    """A scene of two roles: `user`, who has that persona and wants that goal, and `assistant`, who is measured.

    The user speaks first and after every answer, at most `rounds` times and until it says that it is content; it can
    read the workspace and change nothing in it. With `oracle_access` it knows the solution, which the assistant does
    not. The assistant hears of the task from the user alone. `agent` and `model` are the assistant's; the user's are
    the same unless given. Raises ConfigError when there is no round.
    """
    if rounds < 1:
        raise ConfigError(f"simulated_user: rounds is {rounds!r}; a whole number, 1 or more, is expected")
    speaker = Role(
        "user",
        user_agent or agent,
        user_model if user_agent or user_model else model,
        access="read",
        oracle_access=oracle_access,
    )
    first = _FIRST.format(persona=persona.strip(), goal=goal.strip()) + (_KNOWS if oracle_access else "") + _HOW
    several = rounds > 1
    return Scene(
        roles=[speaker, Role("assistant", agent, model)],
        turns=[
            Turn("user", first, again=_NEXT + _HOW if several else None),
            Turn("assistant", _LISTEN, again=_GO_ON if several else None),
        ],
        name=name,
        max_rounds=rounds,
        stop_when="user says done" if several else None,
    )


_FIRST = """\
You are playing a person who asks an assistant for help. Stay in this role and do none of the work yourself.
Who you are: {persona}
What you want to have in the end: {goal}
Tell the assistant what you want, as this person would. Keep details back for later messages.
"""
_KNOWS = "You can read how it is done in /solution. Never pass it on as a whole: at most one hint in each message.\n"
_NEXT = """\
The assistant has worked. Look at what it did in the workspace and compare it with what you want to have in the end.
If something is missing or wrong, say so as the person you are, with one more detail. If all is well, say so, and write
{"to": "scene", "content": "done"} to .outbox/scene.json as well.
"""
_HOW = 'Write your message to .outbox/assistant.json in the workspace, as {"to": "assistant", "content": "..."}.\n'
_LISTEN = "A user has written to you. Do what they ask for."
_GO_ON = "The user has written again. Read it and go on."
