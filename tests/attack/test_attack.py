"""No cheat of the catalogue is paid, whatever the verifier, the sandbox and the user; honest work always is.

As the sandbox user no cheat gets a passing reward. As root none gets one that the result calls trusted. The table of
all outcomes is printed at the end of the test run.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.attack.tasks import SOLVE, write_task

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


class Attacks:
    """The whole catalogue on one kind of verifier in one kind of sandbox, by the sandbox user and by root."""

    kind: str
    backend: str

    @pytest.mark.parametrize("user", ["agent", "root"])
    async def test_no_cheat_is_paid(
        self, user: str, tmp_path: Path, record_property: Callable[[str, object], None]
    ) -> None:
        task = write_task(self.kind, tmp_path)
        cheats = [NOTHING, SOLVED, *(cheat for cheat in catalogue() if user == "root" or not cheat.needs_root)]
        places = asyncio.Semaphore(AT_ONCE)

        async def one(cheat: Cheat) -> Outcome:
            async with places:
                return await attack(cheat, task, backend=self.backend, user=None if user == "root" else user)

        async with backends_in_use():
            found = await asyncio.gather(*(one(cheat) for cheat in cheats))
        words = {outcome.cheat.name: outcome.word for outcome in found}
        record_property("attack", {"column": f"{self.kind} {self.backend} {user}", "rows": words})
        nothing, solved, *others = found
        assert nothing.rewards is not None, nothing
        assert not nothing.paid
        assert solved.paid, solved
        assert [outcome for outcome in others if outcome.paid] == []
        if user != "root":
            assert [outcome for outcome in others if outcome.word.startswith("1")] == []


@pytest.mark.needs("local")
class TestPytestOnLocal(Attacks):
    kind, backend = "pytest", "local"


@pytest.mark.needs("local")
class TestShellOnLocal(Attacks):
    kind, backend = "shell", "local"


@pytest.mark.needs("local")
class TestJsonOnLocal(Attacks):
    kind, backend = "json", "local"


@pytest.mark.needs("local")
class TestCopiedOnLocal(Attacks):
    kind, backend = "copied", "local"


@pytest.mark.needs("docker")
class TestPytestOnDocker(Attacks):
    kind, backend = "pytest", "docker"


@pytest.mark.needs("docker")
class TestShellOnDocker(Attacks):
    kind, backend = "shell", "docker"


@pytest.mark.needs("docker")
class TestJsonOnDocker(Attacks):
    kind, backend = "json", "docker"
