"""Files are read bounded and never followed out of the task; trees are listed after their ignore files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from benchflow.task import files
from benchflow.task.files import Unreadable, read_text, read_tree


def write(folder: Path, *names: str, text: str = "") -> None:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def names(folder: Path) -> list[str]:
    tree = read_tree(folder, folder.resolve())
    assert tree.problems == []
    assert [file.relative_to(folder).as_posix() for file, _ in tree.files] == [name for _, name in tree.files]
    return [name for _, name in tree.files]


def codes(folder: Path, root: Path) -> list[str]:
    return [problem.code for problem in read_tree(folder, root.resolve()).problems]


def test_reading(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfx\r\n")
    assert read_text(tmp_path / "a", tmp_path, 100) == "x\r\n"


@pytest.mark.parametrize("code", ["missing-file", "not-utf8", "too-large", "escapes-task", "not-a-file", "unreadable"])
def test_what_is_not_read(tmp_path: Path, code: str) -> None:
    root = tmp_path / "root"
    file = root / "file"
    root.mkdir()
    if code == "not-utf8":
        file.write_bytes(b"a\nb\xff")
    elif code == "too-large":
        with file.open("wb") as stream:
            stream.truncate(100 * 1024 * 1024)
    elif code == "escapes-task":
        (tmp_path / "secret").write_text("x")
        file.symlink_to(tmp_path / "secret")
    elif code == "not-a-file":
        os.mkfifo(file)
    elif code == "unreadable":
        file.symlink_to(file)
    with pytest.raises(Unreadable) as caught:
        read_text(file, root.resolve(), 100)
    assert caught.value.problem.code == code
    assert caught.value.problem.line == (2 if code == "not-utf8" else None)


def test_ignore_files_apply_downwards_and_are_never_listed(tmp_path: Path) -> None:
    write(
        tmp_path, "test.sh", "a.log", "keep.log", "data/b.log", "data/deep/c.txt", "data/deep/d.log", "cache/x", "sub/y"
    )
    write(tmp_path, ".harborignore", text="# comment\n*.log\n!keep.log\ncache/\n/data/deep/c.txt\n")
    write(tmp_path, "data/deep/.harborignore", text="!d.log\n")
    assert names(tmp_path) == ["data/deep/d.log", "keep.log", "sub/y", "test.sh"]


def test_an_ignored_folder_cannot_be_entered_again(tmp_path: Path) -> None:
    write(tmp_path, ".harborignore", text="cache/\n!cache/x\n")
    write(tmp_path, "cache/x")
    assert names(tmp_path) == []


def test_without_rules_an_ignore_file_is_a_file(tmp_path: Path) -> None:
    write(tmp_path, ".harborignore", "a", text="a\n")
    tree = read_tree(tmp_path, tmp_path.resolve(), ignores=False)
    assert [name for _, name in tree.files] == [".harborignore", "a"]


def test_a_missing_folder_is_empty(tmp_path: Path) -> None:
    assert read_tree(tmp_path / "nothing", tmp_path) == files.Tree()


def test_links_inside_are_followed_and_links_out_are_not(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, "tests/a", "shared/b")
    write(tmp_path, "secret")
    (root / "tests/in").symlink_to("../shared")
    (root / "tests/file").symlink_to("../shared/b")
    tree = read_tree(root / "tests", root.resolve())
    assert [name for _, name in tree.files] == ["a", "file", "in/b"]
    (root / "tests/out").symlink_to(tmp_path)
    (root / "tests/out-file").symlink_to("../../secret")
    (root / "tests/nothing").symlink_to("nowhere")
    assert sorted(codes(root / "tests", root)) == ["escapes-task", "escapes-task", "not-a-file"]


def test_ignored_links_do_not_matter(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, "tests/a")
    write(root, "tests/.harborignore", text="out\n")
    (root / "tests/out").symlink_to(tmp_path)
    assert codes(root / "tests", root) == []


def test_a_folder_that_is_a_link_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "tests").symlink_to(tmp_path)
    assert codes(root / "tests", root) == ["escapes-task"]


def test_cycles_of_links_end(tmp_path: Path) -> None:
    write(tmp_path, "a/x", "b/y")
    (tmp_path / "a/to-b").symlink_to("../b")
    (tmp_path / "b/to-a").symlink_to("../a")
    (tmp_path / "self").symlink_to(".")
    assert set(codes(tmp_path, tmp_path)) == {"link-cycle"}


def test_pipes_are_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert codes(tmp_path, tmp_path) == ["not-a-file"]


def test_a_tree_without_end_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ENTRIES_LIMIT", 10)
    write(tmp_path, *(f"d/{number}" for number in range(20)))
    assert codes(tmp_path, tmp_path) == ["too-large"]


def test_a_folder_tree_deeper_than_the_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(1500):
        Path("d").mkdir()
        os.chdir("d")
    try:
        assert read_tree(tmp_path, tmp_path.resolve()).files == []
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)  # Python's own removal is recursive


def test_a_bad_ignore_file(tmp_path: Path) -> None:
    (tmp_path / ".harborignore").write_bytes(b"\xff")
    assert codes(tmp_path, tmp_path) == ["not-utf8"]
