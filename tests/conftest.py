"""What every test shares: the `needs` marker, which skips a test whose part of the machine is absent.

A skip names what is missing. With BENCHFLOW_REQUIRE=docker,local,... (or `all`) an absent part fails instead,
so that a continuous-integration run can never be green by skipping.
"""

from __future__ import annotations

import os
import shutil
from functools import cache
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


def _missing_command(*names: str) -> str:
    return "" if any(shutil.which(name) for name in names) else f"no {' or '.join(names)} on PATH"


PARTS: dict[str, Callable[[], str]] = {
    "git": lambda: _missing_command("git"),
    "node": lambda: _missing_command("node"),
    "browser": lambda: _missing_command("chromium"),
}
"""Part name -> a probe that returns what is missing, or nothing."""


@cache
def missing(part: str) -> str:
    return PARTS[part]()


def pytest_runtest_setup(item: pytest.Item) -> None:
    required = os.environ.get("BENCHFLOW_REQUIRE", "").split(",")
    for mark in item.iter_markers("needs"):
        for part in mark.args:
            if reason := missing(part):
                if part in required or "all" in required:
                    pytest.fail(f"{part} is required here: {reason}", pytrace=False)
                pytest.skip(f"{part}: {reason}")
