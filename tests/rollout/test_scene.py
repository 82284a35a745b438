"""Scenes compile to explicit steps, and every mistake is said at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import ConfigError
from benchflow.rollout.scene import Role, Scene, Turn, compile_steps

CODER, REVIEWER = Role("coder", "gemini", "flash"), Role("reviewer", "claude")


def test_single_gives_the_instruction() -> None:
    (step,) = compile_steps([Scene.single(agent="gemini", model="flash")], "do it")
    assert (step.prompt, step.role.agent, step.role.model) == ("do it", "gemini", "flash")
    assert step.opens_session
    assert step.closes_scene


def test_sessions_open_once_per_role_and_scene() -> None:
    scenes = [
        Scene([CODER, REVIEWER], [Turn("coder"), Turn("reviewer", "look"), Turn("coder", "fix")], name="one"),
        Scene([CODER], [Turn("coder", "again")], name="two"),
    ]
    steps = compile_steps(scenes, "do it")
    assert [(s.scene, s.role.name, s.prompt, s.opens_session, s.closes_scene) for s in steps] == [
        ("one", "coder", "do it", True, False),
        ("one", "reviewer", "look", True, False),
        ("one", "coder", "fix", False, True),
        ("two", "coder", "again", True, True),
    ]


def test_every_mistake_is_named_at_once() -> None:
    scenes = [
        Scene([CODER, CODER], [Turn("nobody")], name="same"),
        Scene([REVIEWER], [], name="same"),
    ]
    with pytest.raises(ConfigError) as caught:
        compile_steps(scenes, "x")
    text = str(caught.value)
    assert "two scenes are named 'same'" in text
    assert "two roles are named 'coder'" in text
    assert "'nobody'; its roles are: coder, coder" in text
    assert "has no turns" in text


def test_no_scene_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="no scene"):
        compile_steps([], "x")


@given(st.lists(st.sampled_from(["coder", "reviewer"]), min_size=1), st.text())
@settings(deadline=None)
def test_one_step_per_turn_in_order(order: list[str], instruction: str) -> None:
    steps = compile_steps([Scene([CODER, REVIEWER], [Turn(name) for name in order])], instruction)
    assert [step.role.name for step in steps] == order
    assert sum(step.opens_session for step in steps) == len(set(order))
    assert [step.closes_scene for step in steps] == [False] * (len(order) - 1) + [True]
