"""What a script's reward files say, when there are two."""

from __future__ import annotations

import pytest

from benchflow.errors import VerifierError
from benchflow.verify.script import check_agreement


@pytest.mark.parametrize(
    ("rewards", "text"),
    [
        ({"reward": 1.0}, None),
        ({"reward": 1.0}, b"1\n"),
        ({"reward": 2 / 3}, b"0.67"),
        ({"reward": 0.0, "speed": 3.0}, b"0"),
        ({"correct": 1.0, "speed": 0.3}, b"1"),
        ({"correct": 0.5}, b"0"),
        ({"reward": 1.0}, b""),
        ({"reward": 1.0}, b"passed"),
    ],
)
def test_files_that_agree(rewards: dict[str, float], text: bytes | None) -> None:
    check_agreement(rewards, text)


@pytest.mark.parametrize(
    ("rewards", "text"),
    [({"reward": 1.0}, b"0"), ({"reward": 0.0}, b"1"), ({"any": 1.0}, b"0"), ({"reward": 1.0}, b"0.995")],
)
def test_files_that_disagree_are_no_reward(rewards: dict[str, float], text: bytes) -> None:
    with pytest.raises(VerifierError, match=r"reward\.json says .* and reward\.txt"):
        check_agreement(rewards, text)
