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
    assert step.closes_round


def test_sessions_open_once_per_role_and_scene() -> None:
    scenes = [
        Scene([CODER, REVIEWER], [Turn("coder"), Turn("reviewer", "look"), Turn("coder", "fix")], name="one"),
        Scene([CODER], [Turn("coder", "again")], name="two"),
    ]
    steps = compile_steps(scenes, "do it")
    assert [(s.scene, s.role.name, s.prompt, s.opens_session) for s in steps] == [
        ("one", "coder", "do it", True),
        ("one", "reviewer", "look", True),
        ("one", "coder", "fix", False),
        ("two", "coder", "again", True),
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


def test_rounds_are_written_out() -> None:
    turns = [Turn("coder", again="go on"), Turn("reviewer", "look")]
    scene = Scene([CODER, REVIEWER], turns, "loop", max_rounds=2, stop_when="reviewer says done")
    steps = compile_steps([scene, Scene.single("claude", name="after")], "do it")
    assert [(s.round, s.prompt, s.source, s.opens_session, s.closes_round) for s in steps] == [
        (1, "do it", "instruction", True, False),
        (1, "look", "scene", True, True),
        (2, "go on", "scene", False, False),
        (2, "look", "scene", False, True),
        (1, "do it", "instruction", True, True),
    ]
    assert {step.until for step in steps} == {"reviewer says done", ""}


@given(st.lists(st.sampled_from(["coder", "reviewer"]), min_size=1, max_size=5), st.integers(1, 5))
@settings(deadline=None)
def test_every_round_has_every_turn(order: list[str], rounds: int) -> None:
    scene = Scene([CODER, REVIEWER], [Turn(name) for name in order], max_rounds=rounds)
    steps = compile_steps([scene], "x")
    assert [step.role.name for step in steps] == order * rounds
    assert sum(step.closes_round for step in steps) == rounds


BOTH = [CODER, REVIEWER]
TURNS = [Turn("coder"), Turn("reviewer", "look")]


@pytest.mark.parametrize(
    ("scene", "says"),
    [
        (Scene(BOTH, TURNS, stop_when="reward >= 1"), "stop_when needs max_rounds"),
        (Scene(BOTH, TURNS, max_rounds=3, stop_when="boss says done"), "waits for 'boss', who has no turn"),
        (Scene(BOTH, TURNS[:1], max_rounds=3, stop_when="reviewer says done"), "'reviewer', who has no turn"),
        (Scene([CODER], TURNS[:1], max_rounds=3, stop_when="coder says done"), "one role has no outbox"),
        (Scene(BOTH, TURNS, max_rounds=3, stop_when="when it is good"), "not understood"),
        (Scene(BOTH, TURNS, max_rounds=0), "max_rounds is 0"),
        (Scene(BOTH, TURNS, max_rounds=10**6), "from 1 to 1000"),
        (Scene(BOTH, TURNS, max_rounds=True), "max_rounds is True"),
        (Scene(BOTH, [Turn("coder", again="x"), TURNS[1]]), "again is never said"),
        (Scene([CODER], [Turn("coder", best_of=0)]), "best_of is 0"),
        (Scene([Role("scene", "x"), CODER], [Turn("scene")]), "can be named 'scene'"),
        (Scene([Role("../x", "x")], [Turn("../x")]), "can be named '../x'"),
        (Scene([Role("a", "x", access="none")], [Turn("a")]), "'read' or 'write'"),  # type: ignore[arg-type]
        (Scene([Role("a", "x", timeout=0)], [Turn("a")]), "timeout is 0"),
        (Scene([Role("a", "x", reads_trajectory="b")], [Turn("a")]), "a list of roles"),
        (Scene([Role("a", "x", reads_trajectory=["b"]), CODER], [Turn("a")]), "names 'b', who is no other role"),
        (Scene([Role("a", "x", reads_trajectory=["a"]), CODER], [Turn("a")]), "names 'a', who is no other role"),
    ],
)
def test_mistakes(scene: Scene, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        compile_steps([scene], "x")


def test_a_roles_rights_are_the_same_in_every_scene() -> None:
    scenes = [Scene([CODER], [Turn("coder")], "a"), Scene([Role("coder", "x", access="read")], [Turn("coder")], "b")]
    with pytest.raises(ConfigError, match="role 'coder' has one access in scene 'b' and another before"):
        compile_steps(scenes, "x")
