"""Which processes a kill hits: decided from what was seen, tested without any container."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.sandbox.docker.near import Near, Seen, _family, _has_mark, _own


def table(*rows: tuple[int, int, int, int]) -> dict[int, Seen]:
    """Rows are pid, parent, session, started."""
    return {row[0]: Seen(*row) for row in rows}


def test_a_family_is_marked_ones_their_sessions_and_descendants() -> None:
    seen = table(
        (1, 0, 1, 0),  # the container's first
        (7, 1, 1, 1),  # what keeps it alive
        (20, 0, 20, 5),  # the exec's init, marked
        (21, 20, 20, 5),
        (22, 21, 22, 6),  # its own session
        (23, 1, 20, 6),  # an orphan that kept the session
        (24, 22, 24, 7),  # without the mark, known by descent
        (30, 0, 30, 8),  # another exec
        (31, 30, 30, 8),
    )
    assert _family(seen, {20, 21}) == {20, 21, 22, 23, 24}
    assert _family(seen, set()) == set()


def test_the_containers_own_are_its_first_and_its_oldest() -> None:
    seen = table((100, 5, 100, 0), (107, 100, 100, 3), (108, 107, 100, 50), (120, 100, 9, 3), (121, 120, 9, 4))
    assert _own(seen, 100) == {100, 107, 108}
    deeper = table((100, 5, 100, 0), (107, 100, 100, 3), (99, 108, 100, 60), (108, 107, 100, 50), (121, 100, 9, 4))
    assert _own(deeper, 100) == {100, 107, 108, 99}
    assert _own(table((100, 5, 100, 0)), 100) == {100}


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(2, 30), st.integers(0, 30), st.integers(1, 30), st.integers(0, 9)), max_size=20))
def test_a_family_is_closed_and_contains_the_marked(rows: list[tuple[int, int, int, int]]) -> None:
    seen = table(*rows)
    marked = set(list(seen)[:2])
    family = _family(seen, marked)
    assert marked <= family <= set(seen)
    assert not any(process.parent in family and pid not in family for pid, process in seen.items())


def test_a_mark_is_seen_as_soon_as_a_process_is_there() -> None:
    for _ in range(200):
        with subprocess.Popen(["sleep", "1000"], env={"MARK": "0123"}) as process:
            try:
                assert _has_mark(process.pid, "MARK=0123")
            finally:
                process.kill()


def test_no_variable_at_all_is_no_mark() -> None:
    with subprocess.Popen(["/usr/bin/sleep", "1000"], env={}) as process:
        try:
            assert not _has_mark(process.pid, "MARK=0123")
        finally:
            process.kill()
            process.wait()
            assert not _has_mark(process.pid, "MARK=0123")


def test_a_mark_is_a_whole_variable() -> None:
    with subprocess.Popen(["sleep", "1000"], env={"MARK": "0123", "OTHER": "x"}) as process:
        try:
            assert _has_mark(process.pid, "MARK=0123")
            assert not _has_mark(process.pid, "MARK=012")
            assert not _has_mark(process.pid, "ARK=0123")
        finally:
            process.kill()
    assert not _has_mark(process.pid, "MARK=0123")


def test_a_process_that_is_not_of_the_container_is_refused() -> None:
    with pytest.raises(OSError, match="not a process of the container"):
        Near("0123456789abcdef" * 4, os.getpid())
