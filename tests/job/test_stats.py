"""The statistics against scipy, against counting by hand, and by simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from benchflow.job.stats import (
    clustered_interval,
    effective_trials,
    paired_interval,
    pass_at_k,
    pass_hat_k,
    sign_test,
    t_quantile,
    wilson,
)

counts = st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
clusters = st.lists(st.integers(1, 8).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), max_size=30)


@given(counts)
@settings(deadline=None)
def test_wilson_is_scipys(case: tuple[int, int]) -> None:
    expected = scipy_stats.binomtest(*case).proportion_ci(0.95, method="wilson")
    low, high = wilson(case[0] / case[1], case[1])
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert (low == 0, high == 1) == (case[0] == 0, case[0] == case[1])


@given(st.lists(st.booleans(), min_size=1, max_size=60))
@settings(deadline=None)
def test_one_attempt_each_is_plain_wilson(passes: list[bool]) -> None:
    expected = scipy_stats.binomtest(sum(passes), len(passes)).proportion_ci(0.95, method="wilson")
    interval = clustered_interval([(int(passed), 1) for passed in passes])
    assert interval == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(clusters)
@settings(deadline=None)
def test_the_interval_holds_the_share_and_is_never_narrower_than_if_attempts_were_tasks(
    found: list[tuple[int, int]],
) -> None:
    low, high = clustered_interval(found)
    n = sum(t for _, t in found)
    assert 0 <= low <= high <= 1
    if n:
        share = sum(s for s, _ in found) / n
        plain_low, plain_high = wilson(share, n)
        assert low - 1e-9 <= share <= high + 1e-9
        assert high - low >= plain_high - plain_low - 1e-9
        assert effective_trials(found) <= n


def test_attempts_that_always_agree_count_as_one() -> None:
    tasks = [(4, 4)] * 10 + [(0, 4)] * 10
    assert effective_trials(tasks) == pytest.approx(20, rel=0.06)
    assert effective_trials([(0, 5)] * 10) == 10


def test_the_clustered_interval_covers_the_truth() -> None:
    """Tasks of very different difficulty, 4 attempts each: the interval for the mean difficulty covers 95 % of them."""
    rng = np.random.default_rng(7)
    covered = plain = 0
    rounds = 2000
    for _ in range(rounds):
        chances = rng.beta(0.5, 0.5, size=40)
        found = [(int(rng.binomial(4, chance)), 4) for chance in chances]
        low, high = clustered_interval(found)
        covered += low <= 0.5 <= high
        low, high = wilson(sum(s for s, _ in found) / 160, 160)
        plain += low <= 0.5 <= high
    assert covered / rounds > 0.93
    assert plain / rounds < 0.85


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n), st.integers(1, n))))
@settings(deadline=None)
def test_pass_at_k_counts_every_choice(case: tuple[int, int, int]) -> None:
    passed, n, k = case
    outcomes = [1] * passed + [0] * (n - passed)
    choices = list(itertools.combinations(outcomes, k))
    assert pass_at_k(n, passed, k) == pytest.approx(np.mean([any(choice) for choice in choices]))
    assert pass_hat_k(n, passed, k) == pytest.approx(np.mean([all(choice) for choice in choices]))


@given(st.integers(0, 200), st.integers(0, 200))
@settings(deadline=None)
def test_the_sign_test_is_the_exact_binomial_test(wins: int, losses: int) -> None:
    expected = scipy_stats.binomtest(wins, wins + losses, 0.5).pvalue if wins + losses else 1.0
    assert sign_test(wins, losses) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("df", [*range(1, 60), 99, 100, 500, 1999, 2000, 10_000])
def test_t_quantiles_are_scipys(df: int) -> None:
    assert t_quantile(df) == pytest.approx(scipy_stats.t.ppf(0.975, df), rel=1e-9 if df < 2000 else 1e-3)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40))
@settings(deadline=None)
def test_the_paired_interval_is_students_with_two_more_pairs(values: list[float]) -> None:
    """Everything counted twice, the added pairs are whole: one each way, two that do not differ."""
    n = len(values)
    augmented = np.array([*values, *values, 1, -1, 0, 0])
    error = np.std(augmented) / np.sqrt(n + 2)
    low, high = scipy_stats.t.interval(0.95, n - 1, np.mean(augmented), error)
    assert paired_interval(values) == pytest.approx((max(-1, low), min(1, high)), abs=1e-9)


@pytest.mark.parametrize(("n", "attempts"), [(5, 1), (20, 1), (20, 4), (100, 2)])
@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (0.3, 0.6), (0.02, 0.05), (0.9, 0.95)])
def test_the_paired_interval_covers_the_truth(n: int, attempts: int, a: float, b: float) -> None:
    rng = np.random.default_rng(n + attempts)
    rounds = 1000
    covered = 0
    for _ in range(rounds):
        shares = (rng.binomial(attempts, b, n) - rng.binomial(attempts, a, n)) / attempts
        low, high = paired_interval(list(shares)) or (0.0, 0.0)
        covered += low <= b - a <= high
    assert covered / rounds > 0.93


def test_few_tasks_that_all_changed_leave_doubt() -> None:
    assert paired_interval([1.0]) is None
    low, high = paired_interval([1.0, 1.0, 1.0]) or (1.0, 1.0)
    assert low < 0.1
    assert high == 1.0
