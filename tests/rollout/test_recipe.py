"""A rollout's settings, written down and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import ConfigError
from benchflow.rollout.config import RolloutConfig
from benchflow.rollout.recipe import config_of, recipe
from benchflow.rollout.scene import Role, Scene, Turn

NAMES = st.sampled_from(["one", "two", "three"])
ENV = st.dictionaries(st.sampled_from(["A", "B_KEY"]), st.sampled_from(["blue-value", "red-value"]))
TURNS = st.lists(st.builds(Turn, NAMES, st.none() | st.text()), min_size=1, max_size=3)


@st.composite
def configs(draw: st.DrawFn) -> RolloutConfig:
    env = draw(ENV)
    roles = [Role(name, "goose", draw(st.none() | st.just("openai/m")), env) for name in ("one", "two", "three")]
    return RolloutConfig(
        task_path=Path("/tasks/x"),
        scenes=[Scene(roles, draw(TURNS), "first"), Scene(roles[:1], [Turn("one")], "second")],
        sandbox_user=draw(st.none() | st.just("agent")),
        agent_timeout=draw(st.none() | st.floats(1, 100)),
        agent_env=env,
        jobs_dir=Path("/results"),
        labels={"measurement": "x"},
    )


@settings(deadline=None)
@given(configs())
def test_what_is_written_down_is_read_back_but_for_where_it_went(config: RolloutConfig) -> None:
    text = json.dumps(recipe(config))
    assert "-value" not in text, "values of variables are not written"
    assert "results" not in text
    back = config_of(json.loads(text), {"A": "", "B_KEY": "", **config.agent_env}, "config.json")
    assert recipe(back) == recipe(config)
    assert back.agent_env == config.agent_env
    assert [hash(role) for role in back.scenes[0].roles] == [hash(role) for role in config.scenes[0].roles]


def test_variables_that_are_not_set_are_named() -> None:
    config = RolloutConfig(task_path=Path("x"), agent_env={"A": "1", "B": "2"})
    with pytest.raises(ConfigError, match="the values of A, B are not kept"):
        config_of(recipe(config), {}, "config.json")


async def _hook(sandbox: object) -> None:
    pass


def test_what_only_python_has_is_named_unless_it_is_given_again() -> None:
    document: Any = json.loads(json.dumps(recipe(RolloutConfig(task_path=Path("x"), pre_agent_hooks=[_hook]))))
    with pytest.raises(ConfigError, match="run from Python with _hook"):
        config_of(document, {}, "config.json")
    assert config_of(document, {}, "config.json", {"pre_agent_hooks": [_hook]}).pre_agent_hooks == [_hook]


@pytest.mark.parametrize("document", [{}, {"agent_env": []}, {"agent_env": [], "scenes": [{}]}, {"agent_env": 1}])
def test_what_is_no_recipe_is_said_to_be_none(document: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="not a rollout's settings"):
        config_of(document, {}, "config.json")
