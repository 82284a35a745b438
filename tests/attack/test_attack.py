"""No cheat of the catalogue is paid, whatever the verifier, the sandbox and the user; honest work always is.

As the sandbox user no cheat gets a passing reward. As root none gets one that the result calls trusted. The table of
all outcomes is printed at the end of the test run.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.attack.tasks import FILES, SOLVE, write_task

from benchflow.sandbox.registry import backends_in_use
from benchflow.testing.attack import Cheat, attack, catalogue

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchflow.testing.attack import Outcome

AT_ONCE = 4
NOTHING = Cheat("(nothing)", "control", "Nothing is done.", ":")
SOLVED = Cheat("(solved)", "control", "The task is solved.", SOLVE)


def test_there_are_enough_and_each_is_described() -> None:
    cheats = catalogue()
    assert len(cheats) >= 40
    assert len({cheat.family for cheat in cheats}) >= 10
    assert all(len(cheat.what) > 20 for cheat in cheats)


@pytest.mark.parametrize("user", ["agent", "root"])
@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("local", marks=pytest.mark.needs("local")),
        pytest.param("docker", marks=pytest.mark.needs("docker")),
    ],
)
async def test_no_cheat_is_paid(
    backend: str, kind: str, user: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    task = write_task(kind, tmp_path)
    cheats = [NOTHING, SOLVED, *(cheat for cheat in catalogue() if user == "root" or not cheat.needs_root)]
    places = asyncio.Semaphore(AT_ONCE)

    async def one(cheat: Cheat) -> Outcome:
        async with places:
            return await attack(cheat, task, backend=backend, user=None if user == "root" else user)

    async with backends_in_use():
        found = await asyncio.gather(*(one(cheat) for cheat in cheats))
    record_property("attack", {"column": f"{kind} {backend} {user}", "rows": {o.cheat.name: o.word for o in found}})
    nothing, solved, *others = found
    assert nothing.rewards is not None, nothing
    assert not nothing.paid
    assert solved.paid, solved
    assert [outcome for outcome in others if outcome.paid] == []
    if user != "root":
        assert [outcome for outcome in others if outcome.word.startswith("1")] == []
