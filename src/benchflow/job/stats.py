"""The statistics that scores and comparisons need. Pure functions; each is checked against scipy in its tests."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Z_95 = 1.959963984540054
"""Standard deviations that hold 95 % of a normal distribution."""

T_NORMAL = 2000
"""Degrees of freedom from which Student's distribution is taken to be normal; it then differs by less than 0.001."""


def wilson(share: float, n: float) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share observed in `n`; with nothing observed everything is possible."""
    if n <= 0:
        return 0.0, 1.0
    z2 = Z_95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 * math.sqrt(max(0.0, share * (1 - share)) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # At the ends the two terms are equal, and only rounding would keep them apart.
    return max(0.0, centre - half) if share > 0 else 0.0, min(1.0, centre + half) if share < 1 else 1.0


def clustered_interval(clusters: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """The 95 % interval of the share of successes, where each cluster is (successes, trials) of one task.

    Attempts at the same task resemble each other, so they count for less than as many tasks: the interval is
    Wilson's for the number of independent trials that would vary as much. With one trial in each cluster it is
    Wilson's own; with one cluster there is nothing to tell tasks from attempts by, and attempts count in full.
    """
    successes, n = sum(s for s, _ in clusters), sum(t for _, t in clusters)
    return wilson(successes / n, effective_trials(clusters)) if n else (0.0, 1.0)


def effective_trials(clusters: Sequence[tuple[int, int]]) -> float:
    """How many independent trials tell as much as these."""
    filled = [(s, t) for s, t in clusters if t]
    n, count = sum(t for _, t in filled), len(filled)
    if count < 2 or n == count:
        return n
    share = sum(s for s, _ in filled) / n
    if share in (0.0, 1.0):
        return count
    plain = share * (1 - share) / (n - 1)
    between = count / (count - 1) * sum((s - t * share) ** 2 for s, t in filled) / n**2
    return n if between <= plain else max(1.0, n * plain / between)


def pass_at_k(n: int, passed: int, k: int) -> float:
    """The chance that at least one of `k` attempts passes, unbiased, from `passed` of `n`; `k` is at most `n`."""
    return 1 - math.comb(n - passed, k) / math.comb(n, k)


def pass_hat_k(n: int, passed: int, k: int) -> float:
    """The chance that all of `k` attempts pass (pass^k), unbiased, from `passed` of `n`; `k` is at most `n`."""
    return math.comb(passed, k) / math.comb(n, k)


def sign_test(wins: int, losses: int) -> float:
    """The exact two-sided chance of a split at least this uneven if either side were equally likely.

    With one attempt at each task this is McNemar's exact test.
    """
    n = wins + losses
    tail = sum(math.comb(n, i) for i in range(min(wins, losses) + 1))
    return min(1.0, 2 * tail / (1 << n))


def paired_interval(differences: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the mean of paired differences between shares; None for fewer than two.

    Student's interval after adding two pairs of which half differ, one half each way (Agresti and Min, 2005): without
    them a few tasks that all changed the same way would leave no doubt at all.
    """
    n = len(differences)
    if n < 2:
        return None
    mean = sum(differences) / (n + 2)
    spread = (sum(value * value for value in differences) + 1) / (n + 2) - mean * mean
    half = t_quantile(n - 1) * math.sqrt(spread / (n + 2))
    return max(-1.0, mean - half), min(1.0, mean + half)


def variance(values: Sequence[float]) -> float:
    """The unbiased sample variance of at least two values."""
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def t_quantile(df: int) -> float:
    """How many standard errors hold 95 % of Student's distribution with `df` degrees of freedom."""
    if df >= T_NORMAL:
        return Z_95
    low, high = 0.0, 13.0  # 12.71 is the quantile for one degree of freedom, the largest
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_within(middle, df) < 0.95 else (low, middle)
    return (low + high) / 2


def _t_within(t: float, df: int) -> float:
    """The share of Student's distribution between -t and t, by the finite sums for whole degrees of freedom."""
    angle = math.atan(t / math.sqrt(df))
    cosine2 = math.cos(angle) ** 2
    if df % 2:
        term = math.cos(angle)
        total = 0.0
        for i in range(1, df - 1, 2):
            total += term
            term *= cosine2 * (i + 1) / (i + 2)
        return 2 / math.pi * (angle + math.sin(angle) * total)
    term, total = 1.0, 0.0
    for i in range(0, df - 1, 2):
        total += term
        term *= cosine2 * (i + 1) / (i + 2)
    return math.sin(angle) * total
