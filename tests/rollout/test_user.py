"""The loop of a user, without a sandbox: what it is told, when it ends, and what its mistakes become."""

from __future__ import annotations

import asyncio
import functools
import importlib
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import AgentGone, UserError
from benchflow.rollout.user import BaseUser, FunctionUser, PassthroughUser, RoundResult, converse


class Table:
    """Plays rounds by keeping them."""

    def __init__(self, rewards: list[float] | None = None) -> None:
        self.rewards = rewards or []
        self.prompts: list[str] = []

    async def play(self, number: int, prompt: str) -> RoundResult:
        self.prompts.append(prompt)
        reward = self.rewards[number] if number < len(self.rewards) else 0.0
        return RoundResult(number, rewards={"reward": reward})


async def talk(user: BaseUser, rounds: int = 5, table: Table | None = None, solution: str | None = None) -> list[str]:
    table = table or Table()
    await converse(user, "do it", solution, rounds, table.play)
    return table.prompts


async def test_passthrough_says_the_instruction_once() -> None:
    assert await talk(PassthroughUser()) == ["do it"]


async def test_a_user_without_run_says_so() -> None:
    with pytest.raises(UserError, match="has no run"):
        await talk(BaseUser())


@settings(deadline=None)
@given(limit=st.integers(1, 8), wanted=st.integers(0, 8))
def test_rounds_are_counted_from_zero_and_bounded(limit: int, wanted: int) -> None:
    seen: list[tuple[int, int | None]] = []

    async def user(round: int, instruction: str, round_result: RoundResult | None) -> str | None:  # noqa: A002
        assert instruction == "do it"
        seen.append((round, round_result.round if round_result else None))
        return f"prompt {round}" if round < wanted else None

    prompts = asyncio.run(talk(FunctionUser(user), limit))
    assert prompts == [f"prompt {number}" for number in range(min(limit, wanted))]
    assert seen == [(number, number - 1 if number else None) for number in range(min(limit, wanted + 1))]


async def test_a_plain_function_runs_in_a_thread_of_its_own() -> None:
    def blocking(round: int, *_: object) -> str | None:  # noqa: A002
        return None if round else str(threading.current_thread() is threading.main_thread())

    assert await talk(FunctionUser(blocking)) == ["False"]


class Calls:
    """Something callable that is no function."""

    async def __call__(self, round: int, *_: object) -> str | None:  # noqa: A002
        return None if round else "called"


async def _partly(said: str, round: int, *_: object) -> str | None:  # noqa: A002
    return None if round else said


@pytest.mark.parametrize(
    "fn",
    [Calls(), functools.partial(_partly, "called"), lambda number, *_: _partly("called", number)],
    ids=["object", "partial", "lambda"],
)
async def test_anything_callable_is_a_user(fn: object) -> None:
    assert await talk(FunctionUser(fn)) == ["called"]  # type: ignore[arg-type]


class Plain(BaseUser):
    """Overrides both methods with plain ones."""

    def setup(self, instruction: str, solution: str | None = None) -> None:  # type: ignore[override]
        self.told = instruction, solution

    def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:  # type: ignore[override]  # noqa: A002
        return None if round_result and round_result.passed else "again"


async def test_methods_may_be_plain() -> None:
    user = Plain()
    assert await talk(user, table=Table([0.0, 0.5, 1.0]), solution="the way") == ["again"] * 3
    assert user.told == ("do it", "the way")


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration(), KeyError("x"), RecursionError()])
async def test_whatever_it_raises_is_one_kind_of_error(error: Exception) -> None:
    def fail(*_: object) -> str | None:
        raise error

    with pytest.raises(UserError, match=r"FunctionUser failed in run\(\) in round 0"):
        await talk(FunctionUser(fail))


@pytest.mark.parametrize("answer", [7, b"bytes", "", "  \n", ["list"], False])
async def test_an_answer_that_is_no_prompt(answer: object) -> None:
    with pytest.raises(UserError, match="return a prompt, or None to stop"):
        await talk(FunctionUser(lambda *_: answer))  # type: ignore[arg-type]


async def test_what_playing_raises_is_not_the_users() -> None:
    async def gone(number: int, prompt: str) -> RoundResult:
        raise AgentGone(f"{prompt} {number}")

    with pytest.raises(AgentGone, match="do it 0"):
        await converse(PassthroughUser(), "do it", None, 1, gone)


async def test_cancelling_is_passed_on() -> None:
    async def forever(*_: object) -> str | None:
        await asyncio.Event().wait()
        return None

    talking = asyncio.create_task(talk(FunctionUser(forever)))
    await asyncio.sleep(0)
    talking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await talking


@pytest.mark.parametrize("module", ["benchflow", "benchflow.rollout", "benchflow.trial"])
@pytest.mark.parametrize("name", ["BaseUser", "FunctionUser", "PassthroughUser", "RoundResult"])
def test_every_name_is_where_the_documents_import_it_from(module: str, name: str) -> None:
    assert getattr(importlib.import_module(module), name).__module__ == "benchflow.rollout.user"
