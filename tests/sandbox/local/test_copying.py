from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.sandbox.dockerignore import ContextFile
from benchflow.sandbox.local.copying import find_sources, is_archive, placed


def context(**files: str) -> dict[str, ContextFile]:
    """A listing: `-` stands for a slash, a value of `/` for a folder, `file` for a file, anything else for a link."""
    listing = {}
    for key, value in files.items():
        name = key.replace("__", "/")
        kind = {"/": "folder", "file": "file"}.get(value, "link")
        target = value if kind == "link" else ""
        listing[name] = ContextFile(name, Path("/context") / name, kind, 0o644, target)  # type: ignore[arg-type]
    return listing


TREE = context(
    a="file",
    b="file",
    dir="/",
    dir__x="file",
    dir__deep="/",
    dir__deep__y="file",
    tofile="dir/x",
    todir="/dir",
    todeep="todir/deep",
    up="../../../a",
    loop="loop",
    outside="/etc/passwd",
)


def names(pattern: str) -> list[str]:
    return [file.name for file in placed(find_sources(TREE, pattern))]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a", ["a"]),
        ("/a", ["a"]),
        ("./a", ["a"]),
        ("../a", ["a"]),
        ("dir/../a", ["a"]),
        ("dir", ["x", "deep", "deep/y"]),
        ("dir/", ["x", "deep", "deep/y"]),
        ("dir/deep", ["y"]),
        ("[ab]", ["a", "b"]),
        ("?", ["a", "b"]),
        ("dir/*", ["x", "y"]),
        ("**", ["a", "b", "x", "deep", "deep/y", "tofile", "x", "deep", "deep/y", "y", "up"]),
        ("tofile", ["tofile"]),
        ("todir", ["x", "deep", "deep/y"]),
        ("todir/x", ["x"]),
        ("todeep", ["y"]),
        ("up", ["up"]),
    ],
)
def test_sources(pattern: str, expected: list[str]) -> None:
    tree = {name: file for name, file in TREE.items() if name not in {"loop", "outside"}}
    assert [file.name for file in placed(find_sources(tree, pattern))] == expected


def test_the_whole_context() -> None:
    assert names(".") == names("/") == list(TREE)


def test_a_link_that_is_a_source_is_followed_to_its_content() -> None:
    (found,) = placed(find_sources(TREE, "tofile"))
    assert (found.name, found.kind, found.path) == ("tofile", "file", Path("/context/dir/x"))


def test_a_link_within_a_folder_stays_a_link() -> None:
    tree = context(dir="/", dir__link="../a", a="file")
    (found,) = placed(find_sources(tree, "dir"))
    assert (found.kind, found.target) == ("link", "../a")


@pytest.mark.parametrize("pattern", ["missing", "dir/missing", "a/x", "z*", "loop", "outside", "[", "[z-a]"])
def test_what_is_not_there_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        find_sources(TREE, pattern)


def test_a_single_file_can_get_another_name() -> None:
    assert [file.name for file in placed(find_sources(TREE, "a"), "renamed")] == ["renamed"]


@settings(deadline=None)
@given(st.text(alphabet="ab/.*?[]dirxloptuse\\-"))
def test_no_pattern_reaches_outside(pattern: str) -> None:
    try:
        found = find_sources(TREE, pattern)
    except ValueError:
        return
    assert all(file.path.is_relative_to("/context") for source in found for file in source.files)
    assert all(".." not in file.name.split("/") for source in found for file in source.files)


def test_archives_are_told_by_content(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_text("no archive")
    assert not is_archive(tmp_path / "x.tar")
    with tarfile.open(tmp_path / "plain", "w:gz") as tar:
        tar.add(tmp_path / "x.tar", "x")
    assert is_archive(tmp_path / "plain")
    assert not is_archive(tmp_path / "missing")
