"""Loops by name and the simulated user, as the scenes and users they are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import ConfigError
from benchflow.job.yaml_config import job_from_yaml
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.presets import (
    OUTPUT_SHOWN,
    Loop,
    VerifyRetry,
    loop_user,
    looped_scenes,
    parse_loop,
    simulated_user,
)
from benchflow.rollout.scene import Role, Scene, Turn, compile_steps
from benchflow.rollout.user import RoundResult
from benchflow.rollout.yaml_config import rollout_config_from_yaml


@settings(deadline=None)
@given(st.sampled_from(["self-review", "verify-retry"]), st.integers(1, 10_000))
def test_a_loop_reads_as_it_is_written(name: str, times: int) -> None:
    assert parse_loop(f"{name}:{times}") == Loop(name, times)  # type: ignore[arg-type]
    assert parse_loop(name).times == 1


@settings(deadline=None)
@given(st.text())
def test_anything_else_is_refused_in_words(text: str) -> None:
    with pytest.raises(ConfigError, match="loop: "):
        parse_loop(f"x{text}")


@pytest.mark.parametrize(
    "text", ["self-review:0", "self-review:-1", "self-review:1.5", "self-review:", "verify-retry:²"]
)
def test_a_number_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError, match="how often"):
        parse_loop(text)


def test_self_review_adds_turns_to_the_last_scene() -> None:
    scenes = [Scene.single("a", name="one"), Scene.single("b", name="two", role="solver")]
    one, two = looped_scenes(scenes, "self-review:2")
    assert one == scenes[0]
    assert [turn.role for turn in two.turns] == ["solver"] * 3
    assert [step.opens_session for step in compile_steps([two], "do it")] == [True, False, False]
    assert looped_scenes(scenes, "verify-retry:2") is scenes
    assert looped_scenes(scenes, None) is scenes


def test_self_review_is_for_one_role() -> None:
    scene = Scene([Role("a", "x"), Role("b", "x")], [Turn("a"), Turn("b")])
    with pytest.raises(ConfigError, match="one role"):
        looped_scenes([scene], "self-review")


def test_only_verify_retry_needs_a_user() -> None:
    assert loop_user("self-review:2") is None
    assert loop_user(None) is None
    found = loop_user("verify-retry:3")
    assert found is not None
    assert found[1] == 4


async def test_verify_retry_stops_when_it_passes_and_shows_the_end_otherwise() -> None:
    user = VerifyRetry()
    assert await user.run(0, "do it") == "do it"
    assert await user.run(1, "do it", RoundResult(0, rewards={"reward": 1.0})) is None
    long = "x" * OUTPUT_SHOWN + "the end"
    said = await user.run(1, "do it", RoundResult(0, rewards={"reward": 0.9}, verifier_output=long))
    assert said is not None
    assert said.endswith("the end")
    assert len(said) < OUTPUT_SHOWN + 500
    failed = await user.run(1, "do it", RoundResult(0, verifier_error="it wrote no reward"))
    assert failed is not None
    assert failed.endswith("it wrote no reward")


def test_a_simulated_user_speaks_first_and_in_turn() -> None:
    scene = simulated_user("a hurried manager", "a report", agent="claude", model="m", rounds=2)
    assert [(role.name, role.agent, role.model) for role in scene.roles] == [
        ("user", "claude", "m"),
        ("assistant", "claude", "m"),
    ]
    steps = compile_steps([scene], "the task")
    assert "a hurried manager" in steps[0].prompt
    assert "a report" in steps[0].prompt
    assert [step.role.name for step in steps] == ["user", "assistant", "user", "assistant"]
    assert all(".outbox/assistant.json" in step.prompt for step in steps[::2])
    assert "done" in steps[2].prompt
    assert not any("the task" in step.prompt for step in steps), "the assistant hears of it from the user"


def test_a_simulated_user_looks_on_and_may_know_the_solution() -> None:
    user, assistant = simulated_user("p", "g", agent="claude", oracle_access=True, rounds=1).roles
    assert (user.access, user.oracle_access) == ("read", True)
    assert (assistant.access, assistant.oracle_access) == ("write", False)
    (first, _) = compile_steps([simulated_user("p", "g", agent="claude", oracle_access=True, rounds=1)], "the task")
    assert "/solution" in first.prompt
    (first, *_) = compile_steps([simulated_user("p", "g", agent="claude")], "the task")
    assert "/solution" not in first.prompt


def test_a_simulated_user_may_be_another_model() -> None:
    roles = simulated_user("p", "g", agent="claude", model="m", user_agent="gemini").roles
    assert [(role.agent, role.model) for role in roles] == [("gemini", None), ("claude", "m")]
    roles = simulated_user("p", "g", agent="claude", model="m", user_model="other").roles
    assert [(role.agent, role.model) for role in roles] == [("claude", "other"), ("claude", "m")]
    with pytest.raises(ConfigError, match="rounds"):
        simulated_user("p", "g", agent="claude", rounds=0)


def test_a_loop_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text("task_path: x\nagent: claude\nloop: self-review:2\nbranch_concurrency: 3\n")
    asked = rollout_config_from_yaml(file)
    assert (asked.loop, asked.branch_concurrency) == ("self-review:2", 3)
    assert len(asked.played_scenes[0].turns) == 3
    assert job_from_yaml(file).config.loop == "self-review:2"
    file.write_text("task_dir: x\nagent: claude\nloop: self-revue\n")
    with pytest.raises(ConfigError, match="there is none called 'self-revue'"):
        job_from_yaml(file)


def test_a_loop_makes_the_verifier_a_part_of_the_performance() -> None:
    asked = RolloutConfig(task_path=Path("x"), scenes=[Scene.single("claude")])
    assert not asked.scored_between
    assert not replace(asked, loop="self-review").scored_between
    assert replace(asked, loop="verify-retry").scored_between
    assert replace(asked, user=VerifyRetry()).scored_between
    chosen = Scene([Role("a", "claude")], [Turn("a", best_of=2)])
    assert replace(asked, scenes=[chosen]).scored_between
