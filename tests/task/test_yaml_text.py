"""YAML without surprises: plain data with lines, or a fault with a line."""

from __future__ import annotations

import contextlib
import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.task.yaml_text import YamlFault, check_syntax, read_yaml


def test_data_and_lines() -> None:
    data, lines = read_yaml("a: 1\nb:\n  - x: yes\n    y: 2024-01-01\n  - z: null\nc: {d: [1,\n 2]}\n")
    assert data == {"a": 1, "b": [{"x": True, "y": dt.date(2024, 1, 1)}, {}], "c": {"d": [1, 2]}}
    assert lines[("b", 0, "y")] == 4
    assert lines[("b", 1)] == 5
    assert lines[("c", "d", 1)] == 7


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:30", "1:30"),
        ("12:30:45", "12:30:45"),
        ("1e3", "1e3"),
        ("1.0e+3", 1000.0),
        ("0x10", 16),
        ("0", 0),
        ("-0", 0),
        ("'012'", "012"),
        ("=", "="),
        ("~", None),
        ("'no'", "no"),
        ("!!str 5", "5"),
        (".inf", float("inf")),
        ("2001-12-14 21:59:43.10 +05:30", dt.datetime.fromisoformat("2001-12-14T21:59:43.100000+05:30")),
    ],
)
def test_scalars(text: str, value: object) -> None:
    data, _ = read_yaml(f"a: {text}")
    assert data == ({} if value is None else {"a": value})


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("[" * 100_000, 1, "levels deep"),
        ("- " * 100 + "a", 1, "levels deep"),
        ("a: &x [*x]", 1, "alias"),
        ("a: 1\nb: 2\na: 3", 3, "given twice"),
        ("on: 1", 1, "read as true"),
        ("1: x", 1, "read as 1"),
        ("null: x", 1, "read as None"),
        ("? [a]\n: b", 1, "list or a mapping"),
        ("a: !!python/object:os.system x", 1, "tag"),
        ("a: !thing {}", 1, "tag"),
        ("a: !!binary aGk=", 1, "tag"),
        ("<<: {a: 1}", 1, "tag"),
        ("a: 012", 1, "octal"),
        ("a: 2024-13-45", 1, "not a valid timestamp"),
        ("a: " + "9" * 5000, 1, "not a valid int"),
        ("a: !!int x", 1, "not a valid int"),
        ("a: !!bool 3", 1, "not a valid bool"),
        ("a: 1\n-", 2, "not valid YAML"),
        ("a:\n  - \n", 2, "empty"),
        ("a: 1\n---\nb: 2", 2, "second document"),
        ("a: \x07", 1, "not valid YAML"),
        ("\0", 1, "not valid YAML"),
        ("a: [", 1, "not valid YAML"),
        ('a: "\\ud800"', 1, "not valid YAML"),
    ],
)
def test_faults(text: str, line: int, what: str) -> None:
    with pytest.raises(YamlFault, match=what) as caught:
        read_yaml(text)
    assert caught.value.line == line
    assert caught.value.expected
    assert caught.value.fix


def test_any_yaml_passes_the_syntax_check() -> None:
    check_syntax("x: &a !custom {b: 1}\ny: *a\n")
    with pytest.raises(YamlFault):
        check_syntax("a: [")
    with pytest.raises(YamlFault):
        check_syntax("[" * 100_000)


@settings(deadline=None, max_examples=300)
@given(st.text() | st.text(alphabet="ab:-[]{}&*!|>'\"\n #?0.1~%@`,"))
def test_any_text_gives_data_or_a_fault(text: str) -> None:
    with contextlib.suppress(YamlFault):
        read_yaml(text)
