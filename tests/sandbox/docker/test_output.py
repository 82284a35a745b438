"""What is kept of a long output: its head and its tail, never more than was asked for."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.sandbox.docker.output import READ_SIZE, Kept


@settings(deadline=None)
@given(st.integers(0, 40), st.lists(st.binary(max_size=30), max_size=20))
def test_head_and_tail_are_kept(limit: int, pieces: list[bytes]) -> None:
    kept, whole = Kept(limit), b"".join(pieces)
    for piece in pieces:
        kept.add(piece)
    content = kept.content
    assert len(content) == min(limit, len(whole))
    assert kept.dropped == len(whole) - len(content)
    if len(whole) <= limit:
        assert content == whole
    else:
        tail = limit // 2
        assert content == whole[: limit - tail] + whole[len(whole) - tail :]


def test_memory_is_bounded_while_it_runs() -> None:
    kept = Kept(1000)
    for _ in range(50):
        kept.add(bytes(READ_SIZE))
        assert len(kept._tail) <= 2 * READ_SIZE + 1000
    assert kept.dropped == 50 * READ_SIZE - 1000
