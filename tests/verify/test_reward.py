"""Reward files: what counts, and what must not be accepted by accident."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import VerifierError
from benchflow.verify.reward import (
    REWARD_LIMIT,
    check_range,
    is_pass,
    main_reward,
    parse_reward_json,
    parse_reward_text,
)

NUMBERS = {
    b"1": 1.0,
    b"0\n": 0.0,
    b" 1.000 \r\n": 1.0,
    b".5": 0.5,
    b"3.": 3.0,
    b"-2e-1": -0.2,
    b"+1": 1.0,
}
NOT_NUMBERS = [
    b"", b" \n", b"nan", b"inf", b"-Infinity", b"1_0", b"true", b'"1"', b"1e999", b"0x1", b"1 1", b"\xef\xbb\xbf1",
    "\uff11".encode(), b"\xff", b"1\x00", b"1,0", b"1" * (REWARD_LIMIT + 1), b"10" * 400,
]  # fmt: skip


@pytest.mark.parametrize(("content", "value"), NUMBERS.items())
def test_text_numbers(content: bytes, value: float) -> None:
    assert parse_reward_text(content) == {"reward": value}


@pytest.mark.parametrize("content", NOT_NUMBERS)
def test_text_refuses_what_is_not_one_finite_number(content: bytes) -> None:
    with pytest.raises(VerifierError):
        parse_reward_text(content)


def test_json_object_of_numbers() -> None:
    assert parse_reward_json(b'{"reward": 1, "speed": 0.5, "ok": true, "bad": false}') == {
        "reward": 1.0,
        "speed": 0.5,
        "ok": 1.0,
        "bad": 0.0,
    }
    assert parse_reward_json(b"{}") == {}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"1", b"[1]", b'{"a": "1"}', b'{"a": null}', b'{"a": {"b": 1}}', b'{"a": NaN}', b'{"a": Infinity}',
        b'{"a": 1, "a": 0}', b'\xef\xbb\xbf{"a": 1}', b'{"a": 1e999}', b'{"a": ' + b"9" * 400 + b"}", b"[" * 20000,
        b'{"a": 1} x', b"\xff\xfe",
    ],
)  # fmt: skip
def test_json_refuses_everything_else(content: bytes) -> None:
    with pytest.raises(VerifierError):
        parse_reward_json(content)


@given(st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)))
@settings(deadline=None)
def test_json_round_trip(rewards: dict[str, float]) -> None:
    assert parse_reward_json(json.dumps(rewards).encode()) == rewards


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_give_finite_numbers_or_a_verifier_error(content: bytes) -> None:
    for parse in (parse_reward_text, parse_reward_json):
        try:
            rewards = parse(content)
        except VerifierError:
            continue
        assert all(math.isfinite(value) for value in rewards.values())


def test_range() -> None:
    check_range({"reward": 5.0}, None)
    check_range({"reward": 5.0}, (0, 10))
    with pytest.raises(VerifierError, match="reward_range"):
        check_range({"reward": 1.01}, (0, 1))


@pytest.mark.parametrize(
    ("rewards", "passed", "main"),
    [
        (None, False, None),
        ({}, False, None),
        ({"reward": 1.0}, True, 1.0),
        ({"reward": 0.999}, False, 0.999),
        ({"reward": 2.0}, False, 2.0),
        ({"a": 1.0, "b": 1.0}, True, 1.0),
        ({"a": 1.0, "b": 0.0}, False, 0.5),
        ({"reward": 1.0, "b": 0.0}, True, 1.0),
    ],
)
def test_pass_and_main_reward(rewards: dict[str, float] | None, passed: bool, main: float | None) -> None:
    assert is_pass(rewards) is passed
    assert main_reward(rewards) == main
