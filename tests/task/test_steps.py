"""Step names: portable, and different on every file system."""

from __future__ import annotations

import pytest

from benchflow.task.model import parse_config
from benchflow.task.problem import dotted
from benchflow.task.steps import name_fault


@pytest.mark.parametrize(
    "name", ["a", " a", "a b", "-a", "é", "a.b", "con1", "x" * 255, "é" * 127, "日本語", ".hidden"]
)
def test_portable_names(name: str) -> None:
    assert name_fault(name) == ""


BAD = """. .. a. a/b a\\b a:b a* a? a< a> a" a| CON con.txt NUL COM1 LPT9 COM¹ CONIN$ aux"""


@pytest.mark.parametrize("name", [*BAD.split(), "", " ", "a ", "a\0", "a\x7f", "a\x85", "x" * 256, "é" * 128, "\ud800"])
def test_names_that_some_system_refuses(name: str) -> None:
    assert name_fault(name)


@pytest.mark.parametrize(
    ("one", "other"), [("a", "a"), ("a", "A"), ("straße", "STRASSE"), ("é", "e\u0301"), ("É", "e\u0301")]
)
def test_names_that_some_system_takes_for_the_same(one: str, other: str) -> None:
    config, issues = parse_config({"steps": [{"name": one}, {"name": "between"}, {"name": other}]})
    assert config is None
    assert [dotted(issue.path) for issue in issues] == ["steps[2].name"]
    assert issues[0].code == "duplicate-step"


def test_different_names() -> None:
    assert parse_config({"steps": [{"name": "a"}, {"name": "b"}]})[1] == []
