"""Copying in and out, by the functions that do it, on trees made to trick them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.sandbox.local.guest import files
from benchflow.sandbox.local.guest.get import Exporter, stays_inside
from benchflow.sandbox.local.guest.put import Owner, put_data, put_file, put_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

ME = Owner(os.getuid(), os.getgid())


@pytest.fixture
def handles() -> Iterator[list[int]]:
    opened: list[int] = []
    yield opened
    for handle in opened:
        os.close(handle)


def folder(path: Path, handles: list[int]) -> int:
    handles.append(os.open(path, files.OPEN_FOLDER))
    return handles[-1]


def export(source: Path, target: Path, handles: list[int]) -> None:
    target.mkdir(exist_ok=True)
    Exporter(folder(target, handles)).export(folder(source, handles))


@pytest.mark.parametrize(
    ("link", "depth", "inside"),
    [
        ("file", 0, True),
        ("./a//b", 0, True),
        ("..", 0, False),
        ("../file", 1, True),
        ("../../file", 1, False),
        ("a/..", 3, False),
        ("../a/../..", 3, False),
        ("/etc/passwd", 9, False),
        ("", 0, True),
        (".", 0, True),
    ],
)
def test_links_that_stay(link: str, depth: int, inside: bool) -> None:
    assert stays_inside(link, depth) is inside


PART = st.sampled_from(["a", "b", "c", ".", "..", "l"])
LINK = st.lists(PART, min_size=1, max_size=5).map("/".join)


@settings(deadline=None, max_examples=200)
@given(links=st.dictionaries(st.sampled_from(["l", "a/l", "a/b/l", "c", "a/c"]), LINK, min_size=1, max_size=5))
def test_no_set_of_links_leads_out(links: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> None:
    top = tmp_path_factory.mktemp("links")
    source, target = top / "source", top / "target"
    (source / "a" / "b").mkdir(parents=True)
    for place, text in links.items():
        (source / place).symlink_to(text)
    opened: list[int] = []
    export(source, target, opened)
    for handle in opened:
        os.close(handle)
    for place in links:
        path = target / place
        if path.is_symlink():
            assert Path(os.path.realpath(path)).is_relative_to(target), (place, links)


def test_hostile_tree(tmp_path: Path, handles: list[int]) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "file").write_bytes(b"good")
    (source / "file").chmod(0o6755)
    os.mkfifo(source / "fifo")
    (source / "sub").mkdir(mode=0o2700)
    (source / "sub" / "locked").write_bytes(b"locked")
    (source / "sub" / "locked").chmod(0)
    os.link(source / "file", source / "sub" / "again")
    (source / "up").symlink_to("..")
    (source / os.fsdecode(b"\xff\n")).write_bytes(b"odd")
    export(source, target, handles)
    assert {os.fsencode(path.name) for path in target.iterdir()} == {b"\xff\n", b"file", b"sub"}
    assert stat.S_IMODE((target / "file").stat().st_mode) == 0o755
    assert stat.S_IMODE((target / "sub").stat().st_mode) == 0o700
    assert (target / "sub" / "again").stat().st_ino == (target / "file").stat().st_ino
    assert (target / "sub" / "locked").read_bytes() == b"locked"


def test_a_link_bomb_stays_one_file(tmp_path: Path, handles: list[int]) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "0").write_bytes(b"x" * 1_000_000)
    for number in range(1, 200):
        os.link(source / "0", source / str(number))
    export(source, target, handles)
    assert len({path.stat().st_ino for path in target.iterdir()}) == 1


def test_what_is_in_the_way_is_replaced(tmp_path: Path, handles: list[int]) -> None:
    source, target, victim = tmp_path / "source", tmp_path / "target", tmp_path / "victim"
    (source / "name").mkdir(parents=True)
    (source / "name" / "new").write_bytes(b"new")
    (source / "file").write_bytes(b"new")
    victim.mkdir()
    target.mkdir()
    (target / "name").symlink_to(victim)
    (target / "file").symlink_to(victim / "file")
    export(source, target, handles)
    assert list(victim.iterdir()) == []
    assert (target / "name" / "new").read_bytes() == b"new"


def test_holes_stay_holes(tmp_path: Path, handles: list[int]) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    with (source / "sparse").open("wb") as file:
        file.truncate(200 << 20)
        file.seek(100 << 20)
        file.write(b"middle")
    export(source, target, handles)
    assert (target / "sparse").stat().st_size == 200 << 20
    assert (target / "sparse").stat().st_blocks * 512 < 1 << 20
    with (target / "sparse").open("rb") as file:
        file.seek(100 << 20)
        assert file.read(7) == b"middle\0"


def test_too_deep(tmp_path: Path, handles: list[int]) -> None:
    source = tmp_path / "source"
    source.mkdir()
    here = os.getcwd()  # noqa: PTH109
    try:
        os.chdir(source)
        for _ in range(files.MAX_DEPTH + 10):
            os.mkdir("d")  # noqa: PTH102
            os.chdir("d")
    finally:
        os.chdir(here)
    with pytest.raises(OSError, match="deep"):
        export(source, tmp_path / "target", handles)


def test_put_follows_links_of_the_target_and_replaces_files(tmp_path: Path, handles: list[int]) -> None:
    source, target, elsewhere = tmp_path / "source", tmp_path / "target", tmp_path / "elsewhere"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "file").write_bytes(b"new")
    (source / "link").symlink_to("/anywhere")
    (source / "plain").write_bytes(b"plain")
    elsewhere.mkdir()
    target.mkdir(mode=0o711)
    (target / "sub").symlink_to(elsewhere)
    (target / "plain").symlink_to(elsewhere / "through")
    (target / "link").write_bytes(b"old")
    put_tree(folder(source, handles), str(target), ME)
    assert (elsewhere / "file").read_bytes() == b"new"
    assert (elsewhere / "through").read_bytes() == b"plain"
    assert os.readlink(target / "link") == "/anywhere"  # noqa: PTH115
    assert stat.S_IMODE(target.stat().st_mode) == 0o711


def test_put_does_not_write_in_place(tmp_path: Path, handles: list[int]) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"new")
    running = tmp_path / "running"
    running.write_bytes(b"old")
    os.mkfifo(tmp_path / "fifo")
    held = running.open("rb")
    handles.append(os.open(source, os.O_RDONLY))
    for name in ("running", "fifo", "made/on/the/way"):
        put_file(handles[-1], str(tmp_path / name), 0o640, ME)
        assert (tmp_path / name).read_bytes() == b"new"
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o640
    with held:
        assert held.read() == b"old"


@settings(deadline=None, max_examples=50)
@given(contents=st.lists(st.binary(max_size=300), max_size=6))
def test_put_data(contents: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    top = tmp_path_factory.mktemp("data")
    (top / "all").write_bytes(b"".join(contents))
    handle = os.open(top / "all", os.O_RDONLY)
    listed = [(f"d{n % 2}/{n}", 0o600 + n, len(data)) for n, data in enumerate(contents)]
    put_data(handle, str(top / "target"), listed, ME)
    os.close(handle)
    for (name, mode, _), data in zip(listed, contents, strict=True):
        assert (top / "target" / name).read_bytes() == data
        assert stat.S_IMODE((top / "target" / name).stat().st_mode) == mode
