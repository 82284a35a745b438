"""Who runs as whom: the decisions. What the users may touch is tried from inside in tests/e2e/test_scenes.py."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.rollout.cast import needs_own_users, user_names
from benchflow.rollout.scene import Role

PLAIN = Role("coder", "echo")


def test_who_needs_a_user_of_its_own() -> None:
    assert not needs_own_users([[PLAIN], [Role("solver", "echo")]])
    assert needs_own_users([[PLAIN, Role("reviewer", "echo")]])
    assert needs_own_users([[Role("coder", "echo", access="read")]])
    assert needs_own_users([[PLAIN], [Role("user", "echo", oracle_access=True)]])


def test_users_are_named_after_roles() -> None:
    named = user_names("agent", ["coder", "Coder", "the user!", "coder", "日本"])
    assert named == {
        "coder": "agent-coder",
        "Coder": "agent-coder1",
        "the user!": "agent-the-user",
        "日本": "agent-role",
    }


@given(st.lists(st.text(min_size=1, max_size=70), max_size=8))
@settings(deadline=None)
def test_names_are_valid_and_all_different(roles: list[str]) -> None:
    named = user_names("agent", roles)
    assert list(named) == list(dict.fromkeys(roles))
    assert len(set(named.values())) == len(named)
    assert all(re.fullmatch(r"agent-[a-z0-9][a-z0-9-]{0,22}", name) for name in named.values())
