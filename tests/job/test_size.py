"""Sizes: measured, said and read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchflow.errors import ConfigError
from benchflow.job.size import human_size, parse_size, tree_bytes

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e12, "2.5 TB")])
def test_human_size(size: float, text: str) -> None:
    assert human_size(size) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [("50GB", 50_000_000_000), ("500 mb", 500_000_000), ("1.5GiB", 3 << 29), ("7", 7), ("2T", 2 * 10**12)],
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1 XB", "1,5GB", "٣GB"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="50GB"):
        parse_size(text)


def test_a_folder_is_measured_with_all_that_is_in_it_and_nothing_else(tmp_path: Path) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    (inside / "file").write_bytes(b"x" * 100_000)
    (tmp_path / "big").write_bytes(b"x" * 5_000_000)
    (tmp_path / "a" / "link").symlink_to(tmp_path / "big")
    assert 100_000 <= tree_bytes(tmp_path / "a") < 200_000
    assert tree_bytes(tmp_path / "not-there") == 0
