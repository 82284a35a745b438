"""Templates: whole values in env tables, embedded ones in headers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import ConfigError
from benchflow.task.env import references, resolve_env, resolve_text

HOST = {"Q": "qq", "EMPTY": ""}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${Q}", "qq"),
        ("${Q:-d}", "qq"),
        ("${NOPE:-d}", "d"),
        ("${NOPE:-}", ""),
        ("${EMPTY:-d}", ""),
        ("${NOPE:-a}b}", "a}b"),
        ("x${Q}", "x${Q}"),
        ("${Q}x", "${Q}x"),
        ("$Q", "$Q"),
        ("${}", "${}"),
        ("", ""),
    ],
)
def test_a_value_is_a_template_only_as_a_whole(value: str, expected: str) -> None:
    assert resolve_env({"K": value}, HOST) == {"K": expected}


def test_every_missing_variable_is_named() -> None:
    table = {"A": "${X1}", "B": "${X2}", "C": "${Q}", "D": "${X3:-}"}
    with pytest.raises(ConfigError, match=r"X1 \(for verifier\.env\.A\), X2 \(for verifier\.env\.B\)"):
        resolve_env(table, HOST, where="verifier.env")


def test_text_takes_references_inside() -> None:
    assert resolve_text("Bearer ${Q}/${NOPE:-d}", HOST, where="header") == "Bearer qq/d"
    assert references("a ${Q} ${X:-y}") == [("Q", None), ("X", "y")]
    with pytest.raises(ConfigError, match="NOPE"):
        resolve_text("${NOPE}", HOST, where="header")


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.text() | st.sampled_from(["${NOPE}", "${NOPE:-d}"])))
def test_resolving_gives_a_table_or_a_configuration_error(table: dict[str, str]) -> None:
    needed = [name for name, value in table.items() if re.fullmatch(r"\$\{[^}:]+\}", value)]
    if needed:
        with pytest.raises(ConfigError, match=re.escape(f"(for env.{needed[0]})")):
            resolve_env(table, {})
    else:
        assert resolve_env(table, {}).keys() == table.keys()
