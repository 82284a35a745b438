"""Tars in and out: every name and mode survives the round trip, and nothing a tar says reaches outside the target."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.sandbox.archive import ArchiveError, Item, listing, pack, unpack
from benchflow.sandbox.base import FileData

NAME = st.binary(min_size=1, max_size=30).filter(lambda n: not set(n) & {0, 47} and n not in {b".", b".."})
FILES = st.dictionaries(NAME.map(os.fsdecode), st.binary(max_size=2000), max_size=8)


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    stream.seek(0)
    return stream


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def packed(items: list[Item], prefix: str = "root") -> io.BytesIO:
    return io.BytesIO(b"".join(pack(items, prefix=prefix)))


@settings(deadline=None)
@given(FILES)
def test_any_names_and_contents_survive(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        unpack(packed(listing(dict(files))), Path(folder))
        assert {path.name: path.read_bytes() for path in Path(folder).iterdir()} == files


def test_a_tree_survives(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "sub" / ("x" * 200)).mkdir(parents=True)
    (source / "sub" / ("x" * 200) / ("y" * 200)).write_bytes(b"deep")
    (source / "tool").write_bytes(b"#!")
    (source / "tool").chmod(0o711)
    (source / "shared").mkdir()
    (source / "shared").chmod(0o1777)
    (source / "link").symlink_to("sub")
    os.mkfifo(source / "fifo")
    unpack(packed(listing(source)), target)
    assert (target / "sub" / ("x" * 200) / ("y" * 200)).read_bytes() == b"deep"
    assert stat.S_IMODE((target / "tool").stat().st_mode) == 0o711
    assert stat.S_IMODE((target / "shared").stat().st_mode) == 0o1777
    assert str((target / "link").readlink()) == "sub"
    assert not (target / "fifo").exists()


def test_a_file_becomes_the_target(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"content")
    for _ in range(2):
        unpack(packed(listing(tmp_path / "source")), tmp_path / "made" / "target")
    assert (tmp_path / "made" / "target").read_bytes() == b"content"


@pytest.mark.parametrize("name", ["", "/absolute", "../up", "a/../b", "a//b", ".", "a/", "nul\0"])
def test_names_that_are_no_plain_paths_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="plain relative path"):
        listing({name: b""})


def test_the_folders_of_given_names_are_listed() -> None:
    items = listing({"a/b/one": b"1", "a/two": b"2"})
    assert [(item.name, item.kind) for item in items] == [
        ("", "folder"),
        ("a", "folder"),
        ("a/b", "folder"),
        ("a/b/one", "file"),
        ("a/two", "file"),
    ]


def test_a_missing_source(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        listing(tmp_path / "missing")


def test_owner_and_mode_are_written() -> None:
    data = b"".join(pack(listing({"a": FileData(b"x", mode=0o750)}), prefix="opt/b", uid=7, gid=8))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        info = archive.getmember("opt/b/a")
    assert (info.uid, info.gid, info.mode) == (7, 8, 0o750)


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    chunks = pack(listing(path))
    next(chunks)
    os.truncate(path, 10)
    with pytest.raises(OSError, match="shrank"):
        list(chunks)


def test_zeros_become_holes(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(50 * 1024 * 1024)
        file.write(b"start")
    unpack(io.BytesIO(b"".join(pack(listing(tmp_path / "sparse"), prefix="s"))), tmp_path / "out")
    status = (tmp_path / "out").stat()
    assert status.st_size == 50 * 1024 * 1024
    assert status.st_blocks * 512 < 1024 * 1024
    assert (tmp_path / "out").read_bytes().rstrip(b"\0") == b"start"


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A folder with a secret beside the target."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "secret").write_bytes(b"of the host")
    return tmp_path


def assert_contained(world: Path) -> None:
    assert sorted(path.name for path in world.iterdir()) == ["target", "victim"]
    assert [(p.name, p.read_bytes()) for p in (world / "victim").iterdir()] == [("secret", b"of the host")]
    top = os.path.realpath(world / "target")
    for path in (world / "target").rglob("*"):
        assert os.path.realpath(path).startswith(top)


def test_names_that_climb_are_left_out(world: Path) -> None:
    victim = world / "victim"
    unpack(
        tar(
            (member("r", tarfile.DIRTYPE), b""),
            (member("r/../../victim/new"), b"1"),
            (member("../victim/new"), b"1"),
            (member(f"/{victim}/new"), b"1"),
            (member("r/a/../../../victim/new"), b"1"),
            (member("r/good"), b"1"),
        ),
        world / "target",
    )
    assert_contained(world)
    assert (world / "target" / "good").read_bytes() == b"1"


def test_a_link_is_never_written_through(world: Path) -> None:
    victim = world / "victim"
    unpack(
        tar(
            (member("r", tarfile.DIRTYPE), b""),
            (member("r/out", tarfile.SYMTYPE, str(victim)), b""),
            (member("r/out/new"), b"1"),
            (member("r/near", tarfile.SYMTYPE, "../victim"), b""),
            (member("r/near/secret"), b"1"),
            (member("r/file", tarfile.SYMTYPE, "../victim/secret"), b""),
            (member("r/file"), b"1"),
        ),
        world / "target",
    )
    assert_contained(world)


def test_a_link_that_leaves_only_through_another_link_is_left_out(world: Path) -> None:
    unpack(
        tar(
            (member("r/a/b/c", tarfile.DIRTYPE), b""),
            (member("r/a/b/c/top", tarfile.SYMTYPE, "../../.."), b""),
            (member("r/climb", tarfile.SYMTYPE, "a/b/c/top/../victim/secret"), b""),
            (member("r/stay", tarfile.SYMTYPE, "a/b"), b""),
        ),
        world / "target",
    )
    assert_contained(world)
    assert not (world / "target" / "climb").is_symlink()
    assert (world / "target" / "stay").is_symlink()


def test_links_that_were_there_are_replaced(world: Path) -> None:
    target = world / "target"
    target.mkdir()
    (target / "name").symlink_to(world / "victim")
    (target / "file").symlink_to(world / "victim" / "secret")
    unpack(tar((member("r/name/new"), b"1"), (member("r/file"), b"2")), target)
    assert_contained(world)
    assert (target / "file").read_bytes() == b"2"


def test_hard_links_stay_among_what_landed(world: Path) -> None:
    target = world / "target"
    target.mkdir()
    (target / "old").symlink_to(world / "victim" / "secret")
    unpack(
        tar(
            (member("r/one"), b"1"),
            (member("r/two", tarfile.LNKTYPE, "r/one"), b""),
            (member("r/three", tarfile.LNKTYPE, "r/../../victim/secret"), b""),
            (member("r/four", tarfile.LNKTYPE, "r/old"), b""),
            (member("r/five", tarfile.LNKTYPE, "r/missing"), b""),
        ),
        target,
    )
    (target / "old").unlink()
    assert_contained(world)
    assert sorted(path.name for path in target.iterdir()) == ["one", "two"]


def test_special_files_and_special_bits_are_dropped(world: Path) -> None:
    unpack(
        tar(
            (member("r/fifo", tarfile.FIFOTYPE), b""),
            (member("r/disk", tarfile.BLKTYPE), b""),
            (member("r/zero", tarfile.CHRTYPE), b""),
            (member("r/set", mode=0o6755), b"x"),
            (member("r/sub", tarfile.DIRTYPE, mode=0o2070), b""),
        ),
        world / "target",
    )
    assert_contained(world)
    assert {p.name: stat.S_IMODE(p.stat().st_mode) for p in (world / "target").iterdir()} == {
        "set": 0o755,
        "sub": 0o770,
    }


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.SYMTYPE])
def test_something_special_alone_is_an_error(world: Path, kind: bytes) -> None:
    with pytest.raises(ArchiveError, match="not a file"):
        unpack(tar((member("r", kind, "elsewhere"), b"")), world / "target")
    assert not (world / "target").exists()


def test_too_deep_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="deep"):
        unpack(tar((member("r/" + "d/" * 3000 + "file"), b"")), tmp_path / "target")


@settings(deadline=None)
@given(st.binary(max_size=3000))
def test_garbage_is_an_error(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "target"
        with pytest.raises(ArchiveError):
            unpack(io.BytesIO(data), target)
        assert not target.exists()


KINDS = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
PATHS = st.lists(st.sampled_from(["a", "b", "..", ".", "", "victim", "target"]), min_size=1, max_size=5).map("/".join)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(PATHS, KINDS, PATHS), max_size=12))
def test_whatever_a_tar_says_stays_inside(entries: list[tuple[str, bytes, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = Path(folder)
        (world / "target").mkdir()
        (world / "victim").mkdir()
        (world / "victim" / "secret").write_bytes(b"of the host")
        stream = tar(*((member(f"r/{name}", kind, link), b"") for name, kind, link in entries))
        try:
            unpack(stream, world / "target")
        except (ArchiveError, OSError):
            for path in (world / "target").rglob("*"):
                assert not path.is_symlink()
        assert_contained(world)
