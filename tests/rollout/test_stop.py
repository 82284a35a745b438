"""When a scene is over: the small language, and functions."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import ConfigError, UserError
from benchflow.rollout.stop import Scored, Stop, describe_stop, parse_stop
from benchflow.rollout.user import RoundResult


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        (None, Stop()),
        ("reward >= 1.0", Stop(scored=(Scored("reward", 1.0),))),
        (" style>0 ", Stop(scored=(Scored("style", 0.0, above=True),))),
        ("reviewer says done", Stop(speakers=("reviewer",))),
        ("the old user says DONE", Stop(speakers=("the old user",))),
        (["reward >= 0.5", "a says done"], Stop(scored=(Scored("reward", 0.5),), speakers=("a",))),
    ],
)
def test_the_language(text: str | list[str] | None, stop: Stop) -> None:
    assert parse_stop(text) == stop


@pytest.mark.parametrize(
    "text", ["", "reward", "reward == 1", "reward >= high", "says done", "reviewer is done", 7, []]
)
def test_what_it_does_not_understand(text: object) -> None:
    if text == []:
        assert parse_stop([]) == Stop()
        return
    with pytest.raises(ConfigError, match="not understood"):
        parse_stop(text)  # type: ignore[arg-type]


@given(st.text(max_size=60) | st.lists(st.text(max_size=60), max_size=3))
@settings(deadline=None)
def test_any_text_is_a_stop_or_a_config_error(text: str | list[str]) -> None:
    with suppress(ConfigError):
        parse_stop(text)


@pytest.mark.parametrize(
    ("rewards", "over"),
    [({"reward": 1.0}, True), ({"reward": 0.99}, False), ({"other": 1.0}, False), (None, False)],
)
async def test_scores(rewards: dict[str, float] | None, over: bool) -> None:
    assert await parse_stop("reward >= 1").over(RoundResult(0, rewards=rewards)) is over


async def test_functions_plain_and_async() -> None:
    async def later(result: RoundResult) -> bool:
        return result.round == 2

    stop = parse_stop([lambda result: result.round == 1, later])
    assert [await stop.over(RoundResult(number)) for number in range(4)] == [False, True, True, False]
    assert "later" in describe_stop([later, "a says done"])


async def test_a_function_that_fails_is_the_users() -> None:
    def broken(result: RoundResult) -> bool:
        raise ValueError(f"no round {result.round}")

    with pytest.raises(UserError, match="broken failed: ValueError: no round 0"):
        await parse_stop(broken).over(RoundResult(0))
