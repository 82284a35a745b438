"""Templates: whole values in env tables, embedded ones in headers."""

from __future__ import annotations

import re
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import ConfigError
from benchflow.task.env import check_variables, references, resolve_env, resolve_text
from benchflow.task.model import parse_config

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


TEMPLATES = """
[verifier.env]
A = "${IN_VERIFIER}"
SAME = "${OF_THE_TASK}"
[verifier.environment.env]
B = "${IN_BOX}"
[solution.env]
C = "${IN_SOLUTION}"
[environment.env]
D = "${IN_ENVIRONMENT}"
[[environment.setup_commands]]
command = "true"
env = { E = "${IN_SETUP}", F = "${DEFAULTED:-x}" }
[[environment.mcp_servers]]
name = "m"
url = "http://m"
headers = { Authorization = "Bearer ${IN_HEADER}" }
[[environment.mcp_servers]]
name = "n"
transport = "stdio"
command = "n"
env = { G = "${IN_SERVER}" }
"""
STEPS = """
[[steps]]
name = "one"
[steps.verifier.env]
SAME = "literal"
[[steps]]
name = "two"
[steps.verifier.env]
SAME = "literal"
H = "${IN_STEP}"
"""
LATER = {"IN_VERIFIER", "OF_THE_TASK", "IN_BOX", "IN_SETUP", "IN_HEADER", "IN_SERVER"}


def unset(toml: str, *there: str, solution: bool = False, agent: bool = True) -> set[str]:
    """The variables that are named as missing when those of `there` are set."""
    config, issues = parse_config(tomllib.loads(toml))
    assert config is not None, issues
    try:
        check_variables(config, dict.fromkeys(there, ""), solution=solution, agent=agent)
    except ConfigError as error:
        return set(re.findall(r"(\w+) \(for ", error.message))
    return set()


def test_every_table_is_looked_at_before_anything_starts() -> None:
    assert unset(TEMPLATES) == LATER
    assert unset(TEMPLATES, solution=True) == {*LATER, "IN_SOLUTION"}
    assert unset(TEMPLATES, agent=False) == LATER - {"IN_HEADER", "IN_SERVER"}
    assert unset(TEMPLATES, *LATER) == set()
    assert unset(TEMPLATES, *(LATER - {"IN_BOX"})) == {"IN_BOX"}
    assert unset(TEMPLATES + STEPS) == LATER - {"OF_THE_TASK"} | {"IN_STEP"}
    assert unset("") == set()
