"""Settings of a job: waits that grow and end, mistakes named together, the matrix of agents and models."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import ConfigError
from benchflow.job.config import JobConfig, RetryConfig
from benchflow.rollout.scene import Scene

numbers = st.floats(0, 1000)


@given(numbers, st.floats(1, 10), numbers, st.integers(1, 50))
@settings(deadline=None)
def test_waits_grow_by_the_multiplier_up_to_the_limit(least: float, times: float, most: float, retry: int) -> None:
    config = RetryConfig(min_wait_sec=least, wait_multiplier=times, max_wait_sec=most)
    assert config.wait(retry) == pytest.approx(min(most, least * times ** (retry - 1)), rel=1e-9, abs=1e-12)


def test_waits_do_not_overflow() -> None:
    assert RetryConfig(wait_multiplier=10.0, max_wait_sec=30.0).wait(10_000) == 30.0


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        JobConfig(concurrency=0, attempts=True, n_tasks=0, agent=[], include="t*")
    assert all(word in str(caught.value) for word in ("concurrency", "attempts", "n_tasks", "agent", "include"))
    with pytest.raises(ConfigError) as caught:
        RetryConfig(max_retries=-1, wait_multiplier=0.5, min_wait_sec=math.inf, max_wait_sec=math.nan)
    assert all(word in str(caught.value) for word in ("max_retries", "wait_multiplier", "min_wait_sec", "max_wait_sec"))


def test_the_matrix() -> None:
    assert JobConfig().casts == [[Scene.single("oracle")]]
    several = JobConfig(agent=["a", "b", "a"], model=["m", "n"], prompts=[None, "check"])
    assert several.casts == [
        [Scene.single(agent, model, prompts=[None, "check"])] for agent in "ab" for model in ("m", "n")
    ]
    scenes = [Scene.single("x")]
    assert JobConfig(scenes=scenes).casts == [scenes]


def test_as_the_documents_write_it() -> None:
    config = JobConfig(
        retry=RetryConfig(
            max_retries=2,
            wait_multiplier=2.0,
            min_wait_sec=1.0,
            max_wait_sec=30.0,
        ),
        sandbox_setup_timeout=300,
    )
    assert [config.retry.wait(n) for n in (1, 2, 5, 6)] == pytest.approx([1, 2, 16, 30])
