"""Files below a root directory as the kernel resolves them there: links and climbing paths stay inside it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from benchflow.sandbox.archive import ArchiveError, listing
from benchflow.sandbox.docker.rooted import Rooted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ME = (os.getuid(), os.getgid())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(b"of the host")
    folder = tmp_path / "root"
    (folder / "etc").mkdir(parents=True)
    (folder / "etc" / "passwd").write_bytes(b"inside")
    return folder


@pytest.fixture
def files(root: Path) -> Iterator[Rooted]:
    descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY)
    yield Rooted(descriptor)
    os.close(descriptor)


def test_links_resolve_inside(root: Path, files: Rooted) -> None:
    (root / "absolute").symlink_to("/etc")
    (root / "climbing").symlink_to("../../../../../etc")
    for path in ("/absolute/passwd", "/climbing/passwd", "/../../etc/passwd", "etc/passwd"):
        assert files.read(path, 100) == b"inside"
    (root / "out").symlink_to(root.parent / "secret")
    (root / "up").symlink_to("../secret")
    for path in ("/out/x", "/up/x", "/../secret", "/nothing", "/etc/passwd/below"):
        with pytest.raises(FileNotFoundError):
            files.read(path, 100)


def test_only_regular_files_are_read(root: Path, files: Rooted) -> None:
    os.mkfifo(root / "fifo")
    (root / "link").symlink_to("etc/passwd")
    for path in ("/fifo", "/link", "/etc"):
        with pytest.raises(ArchiveError, match="regular"):
            files.read(path, 100)
    with pytest.raises(ArchiveError, match="longer"):
        files.read("/etc/passwd", 5)


def test_put_makes_parents_and_replaces_files(root: Path, files: Rooted) -> None:
    files.put(listing({"a/b": b"1", "c": b"2"}), "/new/place", ME)
    (root / "new" / "place" / "c").chmod(0o400)
    files.put(listing({"c": b"3"}), "/new/place", ME)
    assert (root / "new/place/a/b").read_bytes() == b"1"
    assert (root / "new/place/c").read_bytes() == b"3"
    assert stat.S_IMODE((root / "new/place/c").stat().st_mode) == 0o644


def test_put_leaves_existing_folders_as_they_are(root: Path, files: Rooted, tmp_path: Path) -> None:
    (root / "etc").chmod(0o711)
    source = tmp_path / "source"
    (source / "etc").mkdir(parents=True, mode=0o755)
    (source / "etc" / "new").write_bytes(b"x")
    files.put(listing(source), "/", ME)
    assert stat.S_IMODE((root / "etc").stat().st_mode) == 0o711
    assert (root / "etc" / "new").read_bytes() == b"x"


def test_put_follows_links_inside_only(root: Path, files: Rooted) -> None:
    (root / "link").symlink_to("/etc")
    (root / "file").symlink_to("etc/passwd")
    files.put(listing({"one": b"1"}), "/link", ME)
    files.put(listing({"file": b"through"}), "/", ME)
    assert (root / "etc" / "one").read_bytes() == b"1"
    assert (root / "etc" / "passwd").read_bytes() == b"through"
    (root / "out").symlink_to(root.parent)
    (root / "out-file").symlink_to(root.parent / "secret")
    with pytest.raises(OSError, match="No such file"):
        files.put(listing({"planted": b"1"}), "/out", ME)
    with pytest.raises(OSError, match="No such file"):
        files.put(listing({"out-file": b"1"}), "/", ME)
    assert (root.parent / "secret").read_bytes() == b"of the host"
    assert not (root.parent / "planted").exists()


def test_put_does_not_write_to_what_is_no_file(root: Path, files: Rooted) -> None:
    os.mkfifo(root / "fifo")
    (root / "to-fifo").symlink_to("fifo")
    files.put(listing({"fifo": b"1"}), "/", ME)
    assert (root / "fifo").read_bytes() == b"1"
    os.mkfifo(root / "other")
    (root / "to-other").symlink_to("other")
    with pytest.raises(FileExistsError):
        files.put(listing({"to-other": b"1"}), "/", ME)
    with pytest.raises(IsADirectoryError):
        files.put(listing({"etc": b"1"}), "/", ME)


def test_get_copies_a_tree(root: Path, files: Rooted, tmp_path: Path) -> None:
    (root / "tree" / "sub").mkdir(parents=True)
    (root / "tree" / "sub" / "file").write_bytes(b"1")
    (root / "tree" / "in").symlink_to("sub/file")
    (root / "tree" / "out").symlink_to("/etc/passwd")
    os.mkfifo(root / "tree" / "fifo")
    files.get("/tree", tmp_path / "got")
    assert sorted(path.name for path in (tmp_path / "got").rglob("*")) == ["file", "in", "sub"]
    files.get("/tree/in", tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == b"1"
    with pytest.raises(ArchiveError):
        files.get("/tree/fifo", tmp_path / "two")
    with pytest.raises(FileNotFoundError):
        files.get("/missing", tmp_path / "two")
    assert not (tmp_path / "two").exists()


def test_a_sparse_file_stays_sparse(root: Path, files: Rooted, tmp_path: Path) -> None:
    source = tmp_path / "sparse"
    with source.open("wb") as file:
        file.truncate(100 * 1024 * 1024)
        file.write(b"start")
    files.put(listing(source), "/big", ME)
    files.get("/big", tmp_path / "back")
    for path in (root / "big", tmp_path / "back"):
        status = path.stat()
        assert status.st_size == 100 * 1024 * 1024
        assert status.st_blocks * 512 < 1024 * 1024
