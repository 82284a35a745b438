"""The content digest: what it covers, what it leaves out, and that it is the one Harbor writes."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import TaskError
from benchflow.task.digest import dataset_digest, file_sha256, task_digest, task_files


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


PLAIN = {
    "task.toml": 'schema_version = "1.4"\n',
    "instruction.md": "Write a file.\n",
    "README.md": "About.\n",
    "notes.txt": "not part of the task\n",
    "environment/Dockerfile": "FROM debian:bookworm-slim\n",
    "tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "#!/bin/sh\ntrue\n",
}
IGNORING = PLAIN | {
    "tests/.harborignore": "*.log\n!keep.log\nbig/\n",
    "tests/a.log": "out\n",
    "tests/keep.log": "in\n",
    "tests/big/x": "out\n",
    "tests/sub/.harborignore": "!b.log\n",
    "tests/sub/a.log": "out\n",
    "tests/sub/b.log": "in again\n",
    "environment/a.log": "in: no ignore file counts here\n",
    "steps/one/tests/.harborignore": "/x\n",
    "steps/one/tests/x": "out\n",
    "steps/one/tests/y/x": "in\n",
    "steps/one/instruction.md": "First.\n",
    ".gitignore": "*.tmp\n/solution/secret\n",
    "environment/x.tmp": "out\n",
    "environment/y.pyc": "in: .gitignore stands in for the defaults\n",
    "solution/secret": "out\n",
    "environment/naïve.txt": "in\n",
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(PLAIN, "ca992a32095714ac663f6868259ef4ba642e9b6ba2936a04c0e783d3bf42f18d", id="plain"),
        pytest.param(IGNORING, "490d9ebfda236d41800e4eb44278eeefdb448b613c7b0c05cc060581c09971ef", id="ignore files"),
    ],
)
def test_equals_the_digest_that_harbor_computes(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    assert task_digest(write(tmp_path, files)) == f"sha256:{expected}"


def test_covers_the_parts_of_a_task_after_both_ignore_files(tmp_path: Path) -> None:
    assert task_files(write(tmp_path, IGNORING)) == [
        "README.md",
        "environment/Dockerfile",
        "environment/a.log",
        "environment/naïve.txt",
        "environment/y.pyc",
        "instruction.md",
        "solution/solve.sh",
        "steps/one/instruction.md",
        "steps/one/tests/y/x",
        "task.toml",
        "tests/keep.log",
        "tests/sub/b.log",
        "tests/test.sh",
    ]


def test_leaves_out_caches_and_editor_files_by_default(tmp_path: Path) -> None:
    before = task_digest(write(tmp_path, PLAIN))
    junk = [
        "tests/__pycache__/x.py",
        "tests/y.pyc",
        "environment/.DS_Store",
        "tests/.test.sh.swp",
        "solution/solve.sh~",
    ]
    assert task_digest(write(tmp_path, dict.fromkeys(junk, "junk"))) == before


def test_the_one_file_form_counts_its_own_parts(tmp_path: Path) -> None:
    files = {"task.md": "---\n---\nDo it.\n", "verifier/test.sh": "true\n", "oracle/solve.sh": "true\n"}
    assert task_files(write(tmp_path, files)) == ["oracle/solve.sh", "task.md", "verifier/test.sh"]


def test_a_stray_task_md_does_not_change_a_harbor_task(tmp_path: Path) -> None:
    before = task_digest(write(tmp_path, PLAIN))
    assert task_digest(write(tmp_path, {"task.md": "notes", "verifier/x": "", "oracle/x": ""})) == before


def test_depends_on_content_alone(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one", PLAIN), write(tmp_path / "two", dict(reversed(PLAIN.items())))
    (two / "tests/test.sh").chmod(0o755)
    os.utime(two / "task.toml", (0, 0))
    assert task_digest(one) == task_digest(two)
    write(two, {"tests/test.sh": "changed"})
    assert task_digest(one) != task_digest(two)


def test_a_link_inside_the_task_counts_as_what_it_points_to(tmp_path: Path) -> None:
    linked, copied = write(tmp_path / "linked", PLAIN), write(tmp_path / "copied", PLAIN)
    (linked / "tests/check.sh").symlink_to("../solution/solve.sh")
    write(copied, {"tests/check.sh": PLAIN["solution/solve.sh"]})
    assert task_digest(linked) == task_digest(copied)


@pytest.mark.parametrize("name", ["tests/link", "environment/link", "task.toml", "instruction.md", ".gitignore"])
def test_a_link_out_of_the_task_is_refused(tmp_path: Path, name: str) -> None:
    task = write(tmp_path / "task", PLAIN)
    (tmp_path / "outside").write_text("secret")
    (task / name).unlink(missing_ok=True)
    (task / name).symlink_to(tmp_path / "outside")
    with pytest.raises(TaskError, match="leads out of the task"):
        task_digest(task)


def test_a_part_that_is_a_link_out_of_the_task_is_refused(tmp_path: Path) -> None:
    task = write(tmp_path / "task", {"task.toml": ""})
    write(tmp_path / "shared", {"solve.sh": ""})
    (task / "solution").symlink_to("../shared")
    with pytest.raises(TaskError, match=r"solution: a symlink leads out of the task"):
        task_digest(task)


def test_links_that_are_ignored_or_go_in_circles_do_no_harm(tmp_path: Path) -> None:
    task = write(tmp_path, PLAIN | {".gitignore": "venv/\n"})
    before = task_digest(task)
    (task / "environment/venv").mkdir()
    (task / "environment/venv/python").symlink_to("/usr/bin/env")
    (task / "tests/circle").symlink_to("circle")
    (task / "tests/up").symlink_to("..")
    (task / "tests/gone").symlink_to("nowhere")
    assert task_digest(task) == before


def test_what_cannot_be_digested_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="not a task"):
        task_digest(tmp_path)
    write(tmp_path, PLAIN)
    (tmp_path / ".gitignore").write_bytes(b"\xff\n")
    with pytest.raises(TaskError, match=r"\.gitignore: cannot be used"):
        task_digest(tmp_path)
    (tmp_path / ".gitignore").unlink()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/tests/\xff")).touch()
    with pytest.raises(TaskError, match="is not UTF-8"):
        task_digest(tmp_path)


@settings(deadline=None)
@given(st.lists(st.text(max_size=12).filter(lambda text: "\0" not in text), max_size=6))
def test_any_ignore_file_gives_a_digest_or_a_diagnosis(lines: list[str]) -> None:
    with TemporaryDirectory() as folder:
        task = write(Path(folder), PLAIN)
        text = "\n".join(lines).encode("utf-8", "surrogatepass")
        (task / ".gitignore").write_bytes(text)
        (task / "tests/.harborignore").write_bytes(text)
        try:
            digest = task_digest(task)
        except TaskError:
            return
        assert digest == task_digest(task)


def test_a_large_file_is_hashed_in_pieces(tmp_path: Path) -> None:
    with (tmp_path / "zeros").open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    assert file_sha256(tmp_path / "zeros") == "3b6a07d0d404fab4e23b6d34bc6696a6a312dd92821332385e5af7c01c421351"


def test_the_digest_of_a_dataset_does_not_depend_on_order() -> None:
    one, two = "sha256:" + "a" * 64, "sha256:" + "b" * 64
    assert (
        dataset_digest([one, two])
        == dataset_digest([two, one])
        == "sha256:b1da1a1755748f4703baeaa4ae58e2f42a25bd33aa67a0db9fd84d6b8767c492"
    )
    assert (
        dataset_digest([one], [("metric.py", two)])
        == "sha256:8a876497f63db0453abeb4d930b6f74b967855d066f69feb33a7f97da5365aa0"
    )
