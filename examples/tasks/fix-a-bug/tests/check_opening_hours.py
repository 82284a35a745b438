"""What the module must do; loaded from its file, so that nothing beside it can stand in for it."""

import importlib.util
import itertools
import random

import pytest

spec = importlib.util.spec_from_file_location("opening_hours", "/app/opening_hours.py")
hours = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hours)


def minutes(spans):
    return {minute for start, end in spans for minute in range(start, end)}


@pytest.mark.parametrize(
    ("spans", "merged"),
    [
        ([], []),
        ([(540, 720)], [(540, 720)]),
        ([(540, 1080), (600, 660)], [(540, 1080)]),
        ([(540, 720), (720, 900)], [(540, 900)]),
        ([(600, 700), (500, 650)], [(500, 700)]),
        ([(600, 700), (100, 200)], [(100, 200), (600, 700)]),
        ([(600, 600)], []),
        ([(540, 720), (720, 720)], [(540, 720)]),
    ],
)
def test_merge(spans, merged):
    assert hours.merge(spans) == merged


def test_merge_keeps_its_argument():
    spans = [(600, 700), (100, 200)]
    hours.merge(spans)
    assert spans == [(600, 700), (100, 200)]


def test_a_span_that_ends_before_it_starts():
    try:
        hours.merge([(700, 600)])
    except ValueError:
        return
    pytest.fail("no ValueError for (700, 600)")


def test_the_end_is_not_part_of_a_span():
    assert hours.is_open([(540, 720)], 540)
    assert not hours.is_open([(540, 720)], 720)
    assert not hours.is_open([], 0)


def test_against_sets_of_minutes():
    chance = random.Random(7)
    for _ in range(500):
        starts = [chance.randrange(60) for _ in range(chance.randrange(8))]
        spans = [(start, start + chance.randrange(15)) for start in starts]
        merged = hours.merge(list(spans))
        assert minutes(merged) == minutes(spans)
        assert all(one[1] < two[0] for one, two in itertools.pairwise(merged))
        assert hours.total(list(spans)) == len(minutes(spans))
        assert all(hours.is_open(spans, minute) == (minute in minutes(spans)) for minute in range(80))
