"""Finding tasks in folders, and choosing among them."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import ConfigError
from benchflow.task.source import find_tasks, select


def make(root: Path, *files: str) -> Path:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    return root


def names(tasks: list[Path]) -> list[str]:
    return [task.name for task in tasks]


@pytest.mark.parametrize("mark", ["task.toml", "task.md", "instruction.md"])
def test_a_task_is_found_as_itself(tmp_path: Path, mark: str) -> None:
    make(tmp_path / "one", mark, "tests/test.sh", "solution/task.md.bak")
    assert find_tasks(tmp_path / "one") == [tmp_path / "one"]


def test_a_relative_path_still_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make(tmp_path / "one", "task.toml"))
    assert names(find_tasks(Path())) == ["one"]


def test_the_children_that_are_tasks_sorted_by_name(tmp_path: Path) -> None:
    make(tmp_path, "b/task.toml", "a/task.md", "B/task.toml", "README.md", "docs/index.md", ".git/task.toml")
    (tmp_path / "linked").symlink_to("a")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "gone").symlink_to("nowhere")
    assert names(find_tasks(tmp_path)) == ["B", "a", "b", "linked"]


def test_broken_tasks_are_kept_for_whoever_reports_them(tmp_path: Path) -> None:
    make(tmp_path, "fine/task.toml", "lost/instruction.md", "folder/task.toml/x")
    (tmp_path / "binary").mkdir()
    (tmp_path / "binary/task.toml").write_bytes(b"\xff\0")
    (tmp_path / "dangling").mkdir()
    (tmp_path / "dangling/task.toml").symlink_to("nowhere")
    assert names(find_tasks(tmp_path)) == ["binary", "dangling", "fine", "folder", "lost"]


def test_an_instruction_beside_tasks_does_not_hide_them(tmp_path: Path) -> None:
    assert names(find_tasks(make(tmp_path, "instruction.md", "a/task.toml"))) == ["a"]


def test_what_is_not_there_is_said_with_the_nearest_name(tmp_path: Path) -> None:
    make(tmp_path, "tasks/a/task.toml", "file.txt", "empty/README.md")
    with pytest.raises(ConfigError, match=r"there is no such folder\n  fix: did you mean .*/tasks\?"):
        find_tasks(tmp_path / "task")
    with pytest.raises(ConfigError, match="is a file"):
        find_tasks(tmp_path / "file.txt")
    with pytest.raises(ConfigError, match=r"fix: name its folder: .*/tasks/a"):
        find_tasks(tmp_path / "tasks/a/task.toml")
    with pytest.raises(ConfigError, match="no task in this folder"):
        find_tasks(tmp_path / "empty")
    with pytest.raises(ConfigError, match="cannot be read"):
        find_tasks(Path("a\0b"))


def test_filters_are_names_and_globs(tmp_path: Path) -> None:
    make(tmp_path, *(f"{name}/task.toml" for name in ("net-1", "net-2", "disk-1", "disk[1]")))
    assert names(find_tasks(tmp_path, include=["net-*"])) == ["net-1", "net-2"]
    assert names(find_tasks(tmp_path, include=["net-*", "disk-1"], exclude=["*-2"])) == ["disk-1", "net-1"]
    assert names(find_tasks(tmp_path, include=["disk[1]"])) == ["disk[1]"]
    assert names(find_tasks(tmp_path, include=["disk?1*"])) == ["disk-1", "disk[1]"]


def test_a_filter_that_matches_nothing_names_what_is_near() -> None:
    known = ["write-a-file", "fix-a-bug", "multi-step"]
    with pytest.raises(ConfigError, match=r"include 'write-file' matches no task\n  fix: did you mean write-a-file"):
        select(known, ["fix-a-bug", "write-file"])
    with pytest.raises(ConfigError, match=r"exclude 'zzz' matches no task\n  fix: there are fix-a-bug, multi-step"):
        select(known, [], ["zzz"])
    with pytest.raises(ConfigError, match=r"'zzz' matches no task\n  fix: 99 tasks, such as t0, t1, t10"):
        select([f"t{index}" for index in range(99)], ["zzz"])
    with pytest.raises(ConfigError, match="leave none of 3 tasks"):
        select(known, ["fix*"], ["*bug"])


def test_the_organisation_of_a_name_can_be_left_out() -> None:
    assert select(["a/one", "b/one", "b/two"], ["one"]) == ["a/one", "b/one"]
    assert select(["a/one", "b/one", "b/two"], ["b/*"], ["b/two"]) == ["b/one"]


def test_filters_know_the_names_that_tasks_give_themselves(tmp_path: Path) -> None:
    make(tmp_path, "one/task.toml", "two/task.toml", "three/task.md", "four/task.toml", "broken/task.toml")
    (tmp_path / "one/task.toml").write_text('[task]\nname = "org/first"\n')
    (tmp_path / "two/task.toml").write_text('[task]\nname = "org/one"\n')
    (tmp_path / "three/task.md").write_text("---\ntask: {name: other/third}\n---\n\nDo it.\n")
    (tmp_path / "four/task.toml").write_text("[task]\nname = 4\n")
    (tmp_path / "broken/task.toml").write_bytes(b"\xff\0")
    assert names(find_tasks(tmp_path, include=["org/first"])) == ["one"]
    assert names(find_tasks(tmp_path, include=["org/*"])) == ["one", "two"]
    assert names(find_tasks(tmp_path, exclude=["thir*", "first"])) == ["broken", "four", "two"]
    assert names(find_tasks(tmp_path, include=["one", "o*"])) == ["one", "three", "two"]
    assert names(find_tasks(tmp_path, include=["one"])) == ["one"], "the folder of that very name, and no other"
    with pytest.raises(ConfigError, match=r"'org/frist' matches no task\n  fix: did you mean org/first"):
        find_tasks(tmp_path, include=["org/frist"])


_NAMES = st.lists(st.text("ab-1[]*", min_size=1, max_size=4), max_size=8, unique=True)


@settings(deadline=None)
@given(_NAMES, st.lists(st.text("ab-1[]*?!", max_size=4), max_size=3), st.lists(st.text("ab*", max_size=3), max_size=2))
def test_selecting_is_fnmatch_or_a_diagnosis(known: list[str], include: list[str], exclude: list[str]) -> None:
    def matches(name: str, filters: list[str]) -> bool:
        return any(name == text or fnmatchcase(name, text) for text in filters)

    expected = [name for name in known if (not include or matches(name, include)) and not matches(name, exclude)]
    try:
        assert select(known, include, exclude) == expected
    except ConfigError:
        idle = [text for text in (*include, *exclude) if not any(matches(name, [text]) for name in known)]
        assert idle or not expected


def test_ten_thousand_tasks_are_listed_without_opening_one(tmp_path: Path) -> None:
    for index in range(10_000):
        (tmp_path / f"task-{index:05}").mkdir()
        os.mkfifo(tmp_path / f"task-{index:05}" / "task.toml")  # opening it would block for ever
    assert len(find_tasks(tmp_path)) == 10_000
    assert names(find_tasks(tmp_path, include=["task-00007"])) == ["task-00007"]
