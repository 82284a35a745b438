"""Reading what a verifier wrote. Pure: bytes in, numbers out, and nothing that a parser accepts by accident.

The protocol: `reward.json` (a flat object of finite numbers) is used if it exists, else `reward.txt` (one finite
decimal number, which becomes `{"reward": x}`). Anything else is an error of the verifier, never a zero.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING

from benchflow.errors import VerifierError

if TYPE_CHECKING:
    from collections.abc import Mapping

REWARD_LIMIT = 64 * 1024
"""Bytes a reward file may have."""

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def parse_reward_text(content: bytes) -> dict[str, float]:
    """`reward.txt`: one ASCII decimal number, white space around it allowed. Raises VerifierError."""
    text = _decode(content, "reward.txt")
    if not _NUMBER.fullmatch(text):
        raise VerifierError(f"reward.txt holds {_quote(text)}, which is not a finite decimal number")
    return {"reward": _finite(float(text), "reward.txt")}


def parse_reward_json(content: bytes) -> dict[str, float]:
    """`reward.json`: a flat object of finite numbers; true and false count as 1 and 0. Raises VerifierError."""
    text = _decode(content, "reward.json")
    try:
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=float)
    except (ValueError, RecursionError) as error:
        raise VerifierError(f"reward.json is not strict JSON: {error}") from None
    if not isinstance(document, dict):
        raise VerifierError(f"reward.json holds {_quote(text)}; a flat object of numbers is expected")
    rewards = {}
    for key, value in document.items():
        if not isinstance(value, float | bool):
            raise VerifierError(f"reward.json: {key!r} is {_quote(repr(value))}; a number is expected")
        rewards[key] = _finite(float(value), f"reward.json: {key!r}")
    return rewards


def check_range(rewards: Mapping[str, float], bounds: tuple[float, float] | None) -> None:
    """Raises VerifierError when a reward lies outside what the task declared as its `reward_range`."""
    if bounds is None:
        return
    low, high = bounds
    for key, value in rewards.items():
        if not low <= value <= high:
            raise VerifierError(f"reward {key!r} is {value}, outside the task's reward_range [{low}, {high}]")


def is_pass(rewards: Mapping[str, float] | None) -> bool:
    """A task passes only at reward 1.0. With several metrics, `reward` decides; without it, all must be 1.0."""
    if not rewards:
        return False
    if "reward" in rewards:
        return rewards["reward"] == 1.0
    return all(value == 1.0 for value in rewards.values())


def main_reward(rewards: Mapping[str, float] | None) -> float | None:
    """The one number of a rollout: `reward` if there is one, else the mean of all metrics."""
    if not rewards:
        return None
    return rewards["reward"] if "reward" in rewards else sum(rewards.values()) / len(rewards)


def _decode(content: bytes, name: str) -> str:
    if len(content) > REWARD_LIMIT:
        raise VerifierError(f"{name} is longer than {REWARD_LIMIT} bytes")
    try:
        text = content.decode("utf-8").strip(" \t\r\n")
    except UnicodeDecodeError:
        raise VerifierError(f"{name} is not UTF-8 text") from None
    if not text:
        raise VerifierError(f"{name} is empty")
    return text


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key occurs twice")
    return document


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")


def _finite(value: float, where: str) -> float:
    if not math.isfinite(value):
        raise VerifierError(f"{where} is not finite")
    return value


def _quote(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")
