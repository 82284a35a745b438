"""Loading: a folder gives a task, or every reason why not."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import TaskError
from benchflow.task.document import INSTRUCTION_LIMIT
from benchflow.task.load import is_task, load_task, read_task, strip_canary

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'


def codes(path: Path | str) -> list[str]:
    task, problems = read_task(path)
    errors = [problem.code for problem in problems if problem.severity == "error"]
    assert (task is None) == bool(errors)
    if errors:
        with pytest.raises(TaskError) as caught:
            load_task(path)
        assert all(str(problem) in str(caught.value) for problem in problems)
    return errors


@pytest.mark.parametrize("form", ["toml", "md"])
def test_a_task(write_task: Callable[..., Path], form: str) -> None:
    folder = write_task(form=form)
    task = load_task(folder)
    assert (task.path, task.name, task.form, task.instruction) == (folder, "task", form, "Do it.\n")
    assert task.steps == ()
    assert task.warnings == ()
    assert task.trajectory is None
    assert task.tests_dir.name == ("tests" if form == "toml" else "verifier")
    assert task.upload_files("tests") == [(task.tests_dir / "test.sh", "test.sh")]
    assert task.upload_files("solution") == [(task.solution_dir / "solve.sh", "solve.sh")]
    assert is_task(folder)


def test_both_forms_give_the_same_configuration(write_task: Callable[..., Path]) -> None:
    toml = load_task(write_task({"task.toml": "[environment]\ncpus = 2\n[agent]\ntimeout_sec = 5.0\n"}, name="a"))
    front = "---\nsandbox:\n  cpus: 2\nagent:\n  timeout_sec: 5.0\n---\nDo it.\n"
    md = load_task(write_task({"task.md": front}, form="md", name="b"))
    assert toml.config == md.config
    assert toml.instruction == md.instruction


def test_the_name_is_the_package_name_or_the_folder(
    write_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = load_task(write_task({"task.toml": '[task]\nname = "org/thing"\n'}, name="x"))
    assert (packaged.name, packaged.short_name) == ("org/thing", "thing")
    monkeypatch.chdir(write_task(name="folder"))
    assert load_task(".").name == "folder"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Do it.\n", "Do it.\n"),
        ("\n\nDo it.", "Do it."),
        ("<!-- BENCHMARK Canary GUID x -->\n# terminal-bench-CANARY y\n\n\nDo\n\nit.", "Do\n\nit."),
        ("  <!-- canary -->  \r\n\r\nDo", "Do"),
        ("# A title\n# canary", "# A title\n# canary"),
        ("<!-- canary --> Do it.", "<!-- canary --> Do it."),
        ("Do it.\n<!-- canary -->", "Do it.\n<!-- canary -->"),
        ("<!-- canary -->", ""),
    ],
)
def test_canary_lines(text: str, left: str) -> None:
    assert strip_canary(text) == left


@settings(deadline=None)
@given(st.text(alphabet="canryCNRY#<!->- \n\r\tx"))
def test_stripping_is_idempotent_and_keeps_the_end(text: str) -> None:
    once = strip_canary(text)
    assert text.endswith(once)
    assert not once or once.split("\n")[0].strip()


# -- bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/no/such/folder", "a\0b", "x" * 300, "", "/proc/self/mem", "/dev/null", "\udcff", "/" + "d/" * 3000]
)
def test_paths_that_are_no_task(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(codes(path)) == 1
    assert not is_task(Path(path))


def test_a_path_that_is_the_description(write_task: Callable[..., Path]) -> None:
    _, problems = read_task(write_task() / "task.toml")
    assert "is a file" in str(problems[0])
    assert "name its folder instead" in str(problems[0])


def test_folders_without_a_description(tmp_path: Path) -> None:
    assert "the folder is empty" in str(read_task(tmp_path)[1][0])
    (tmp_path / "x").touch()
    assert "neither task.toml nor task.md" in str(read_task(tmp_path)[1][0])


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"task.toml": "a = "}, ["bad-toml"]),
        ({"task.toml": "a = 1\na = 2"}, ["bad-toml"]),
        ({"task.toml": b"\xff"}, ["not-utf8"]),
        ({"task.toml": "a = " + "9" * 5000}, ["bad-toml"]),
        ({"task.toml": "a = 2024-13-45"}, ["bad-toml"]),
        ({"task.toml": "a = " + "[" * 5000}, ["bad-toml"]),
        ({"task.toml": ".".join("a" * 5000) + " = 1"}, ["invalid-value"]),
        ({"task.toml": "#" * 2_000_000}, ["too-large"]),
        ({"instruction.md": None}, ["missing-file"]),
        ({"instruction.md": "\n \n"}, ["empty-instruction"]),
        ({"instruction.md": "<!-- canary -->\n"}, ["empty-instruction"]),
        ({"instruction.md": b"\xff\xfe"}, ["not-utf8"]),
        ({"instruction.md": "x" * (INSTRUCTION_LIMIT + 1)}, ["too-large"]),
        ({"tests/test.sh": None}, ["missing-test"]),
        ({"tests/test.sh": None, "tests/test.bat": "x"}, ["missing-test"]),
        ({"tests/.harborignore": "*.sh"}, ["ignored-script"]),
        ({"solution/.harborignore": "solve.sh"}, ["ignored-script"]),
        ({"environment/Dockerfile": None}, ["missing-environment"]),
        ({"task.toml": STEPS}, ["missing-step", "missing-step"]),
        ({"task.toml": '[[steps]]\nname = "a"\n[[steps]]\nname = "A"\n'}, ["duplicate-step", "missing-step"]),
        ({"task.toml": '[environment]\nmemory = "1G"\nmemory_mb = 5\n'}, ["conflict"]),
        (
            {
                "task.toml": '[environment]\nmemory = "1G"\nmemory_mb = 5\ndocker_image = "x"\n',
                "environment/Dockerfile": None,
            },
            ["conflict"],
        ),
        ({"task.toml": '[verifier]\ntype = "llm-judge"\n'}, ["missing-rubric"]),
        ({"task.toml": '[verifier]\ntype = "llm-judge"\n[verifier.judge]\nrubric_path = "../x"\n'}, ["escapes-task"]),
        ({"task.toml": "[agent]\ntimeout_sec = []\n", "instruction.md": None}, ["invalid-value", "missing-file"]),
    ],
)
def test_bad_tasks(write_task: Callable[..., Path], files: dict[str, str | bytes | None], expected: list[str]) -> None:
    assert sorted(codes(write_task(files))) == sorted(expected)


@pytest.mark.parametrize(
    ("text", "expected", "line"),
    [
        ("Do it.", "no-front-matter", 1),
        ("---\na: 1\nDo it.", "no-front-matter", 1),
        ("----\n---\nDo it.", "no-front-matter", 1),
        ("---\nagent: [\n---\nDo it.", "bad-yaml", 2),
        ("---\nagent: {}\nagent: {}\n---\nDo it.", "bad-yaml", 3),
        ("---\n- a\n---\nDo it.", "bad-yaml", 2),
        ("---\nsource: no\n---\nDo it.", "invalid-value", 2),
        ("---\n# c\nsandbox:\n  cpus: two\n---\nDo it.", "invalid-value", 4),
        ("---\n---\n", "empty-instruction", None),
        ("---\n---\n<!-- canary -->\n", "empty-instruction", None),
        ("---\nmetadata:\n  a: " + "[" * 100_000 + "\n---\nDo it.", "bad-yaml", 3),
        ("---\nmetadata:\n  a: 0x" + "f" * 6000 + "\n---\nDo it.", "invalid-value", 3),
        ("---\na: '\x00'\n---\nDo it.", "bad-yaml", 2),
        ("---\n---\n" + "x" * (INSTRUCTION_LIMIT + 1), "too-large", None),
    ],
)
def test_bad_one_file_tasks(write_task: Callable[..., Path], text: str, expected: str, line: int | None) -> None:
    folder = write_task({"task.md": text}, form="md")
    assert codes(folder) == [expected]
    assert read_task(folder)[1][0].line == line


def test_a_huge_instruction_is_not_read(write_task: Callable[..., Path]) -> None:
    folder = write_task()
    with (folder / "instruction.md").open("wb") as stream:
        stream.truncate(100 * 1024 * 1024)
    assert codes(folder) == ["too-large"]


@pytest.mark.parametrize("name", ["task.toml", "instruction.md", "tests", "solution", "environment", "trajectory.json"])
def test_links_out_of_the_task(write_task: Callable[..., Path], tmp_path: Path, name: str) -> None:
    folder = write_task()
    inside, outside = folder / name, tmp_path / "outside"
    if inside.exists():
        inside.rename(outside)
    else:
        outside.touch()
    inside.symlink_to(outside)
    assert "escapes-task" in codes(folder)


def test_pipes_do_not_hang(write_task: Callable[..., Path]) -> None:
    for name in ("task.toml", "instruction.md"):
        folder = write_task({name: None}, name=name)
        os.mkfifo(folder / name)
        assert codes(folder) == ["not-a-file"]


def test_problems_carry_the_line_and_say_three_things(write_task: Callable[..., Path]) -> None:
    folder = write_task({"task.toml": 'version = "1.0"\n\n[environment]\n# c\ncpus = "two"\n'})
    task, problems = read_task(folder)
    assert task is None
    assert [(problem.line, problem.severity) for problem in problems] == [(1, "warning"), (5, "error")]
    assert str(problems[1]) == (
        f"{folder / 'task.toml'}:5: environment.cpus: 'two' does not do; expected a number above 0; "
        "fix: write a number such as 2 or 0.5"
    )


def test_task_toml_wins_beside_task_md(write_task: Callable[..., Path]) -> None:
    task = load_task(write_task({"task.md": "# Just a text"}))
    assert task.form == "toml"
    assert [problem.code for problem in task.warnings] == ["ignored-file"]


def test_a_one_file_task_may_keep_the_other_folder_names(write_task: Callable[..., Path]) -> None:
    files: dict[str, str | bytes | None] = {"verifier/test.sh": None, "tests/test.sh": "#!/bin/sh\n"}
    task = load_task(write_task(files, form="md"))
    assert task.tests_dir.name == "tests"


def test_windows_line_ends_in_a_one_file_task(write_task: Callable[..., Path]) -> None:
    task = load_task(write_task({"task.md": "---\r\nsource: x\r\n---\r\n\r\nDo\r\nit.\r\n"}, form="md"))
    assert task.config.source == "x"
    assert task.instruction == "Do\r\nit.\r\n"


# -- what is not required ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "files",
    [
        {"task.toml": '[environment]\ndocker_image = "debian"\n', "environment/Dockerfile": None},
        {"task.toml": '[environment]\nos = "windows"\n', "tests/test.sh": None, "tests/test.bat": "x"},
        {"task.toml": '[verifier.environment]\ndocker_image = "v"\n', "tests/test.sh": None},
        {
            "task.toml": '[verifier]\nenvironment_mode = "separate"\n',
            "tests/test.sh": None,
            "tests/Dockerfile": "FROM debian\n",
        },
        {"task.toml": '[verifier]\ntype = "llm-judge"\n', "tests/test.sh": None, "tests/rubric.toml": ""},
        {"solution/solve.sh": None},
        {"tests/.harborignore": "*.sh\n!test.sh\n"},
    ],
)
def test_what_a_task_may_leave_out(write_task: Callable[..., Path], files: dict[str, str | bytes | None]) -> None:
    assert codes(write_task(files)) == []


def test_a_rubric_is_found_in_the_tests_folder_of_either_form(write_task: Callable[..., Path]) -> None:
    text = "---\nverifier: {type: llm-judge, judge: {rubric_path: tests/r.json}}\n---\nDo it.\n"
    assert codes(write_task({"task.md": text, "verifier/r.json": "{}"}, form="md")) == []


# -- steps ---------------------------------------------------------------------------------------------------


def step_files(**files: str | None) -> dict[str, str | bytes | None]:
    base: dict[str, str | bytes | None] = {
        "task.toml": STEPS,
        "instruction.md": None,
        "steps/one/instruction.md": "# canary\nFirst.\n",
        "steps/two/instruction.md": "Second.\n",
    }
    return base | {f"steps/{name}": text for name, text in files.items()}


def test_steps_take_from_the_task_what_they_do_not_have(write_task: Callable[..., Path]) -> None:
    task = load_task(write_task(step_files()))
    one, two = task.steps
    assert (one.name, one.instruction, two.instruction, task.instruction) == ("one", "First.\n", "Second.\n", "")
    assert (one.tests_dir, one.solution_dir) == (task.tests_dir, task.solution_dir)
    assert (one.workdir, one.setup_script) == (None, None)
    assert [name for _, name in task.upload_files("tests", one)] == ["test.sh"]


def test_steps_with_their_own_files(write_task: Callable[..., Path]) -> None:
    files = step_files()
    files |= {
        "steps/one/tests/test.sh": "own",
        "steps/one/tests/data/x": "",
        "tests/shared.txt": "",
        "steps/one/solution/solve.sh": "own",
        "steps/one/workdir/setup.sh": "",
        "steps/one/workdir/.harborignore": "setup.sh",
        "steps/two/solution/notes.md": "",
        "steps/one/trajectory.json": "{}",
    }
    folder = write_task(files)
    task = load_task(folder)
    one, two = task.steps
    assert {name: file for file, name in task.upload_files("tests", one)} == {
        "data/x": one.tests_dir / "data/x",
        "shared.txt": task.tests_dir / "shared.txt",
        "test.sh": folder / "steps/one/tests/test.sh",
    }
    assert task.upload_files("solution", one) == [(folder / "steps/one/solution/solve.sh", "solve.sh")]
    assert two.solution_dir == task.solution_dir
    assert one.workdir == folder / "steps/one/workdir"
    assert one.setup_script == one.workdir / "setup.sh"
    assert task.trajectory == folder / "steps/one/trajectory.json"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"steps/one/instruction.md": None, "steps/one/x": ""}, ["missing-file"]),
        ({"steps/one/instruction.md": None}, ["missing-step"]),
        ({"tests/test.sh": None, "steps/two/tests/test.sh": "x"}, ["missing-test"]),
        ({"steps/two/tests/test.sh": "x", "steps/two/tests/.harborignore": "*", "tests/test.sh": None}, None),
    ],
)
def test_bad_steps(
    write_task: Callable[..., Path], files: dict[str, str | bytes | None], expected: list[str] | None
) -> None:
    assert codes(write_task(step_files() | files)) == (expected or ["missing-test", "ignored-script"])


def test_a_step_folder_that_is_a_link_out(write_task: Callable[..., Path], tmp_path: Path) -> None:
    folder = write_task(step_files())
    (folder / "steps/two").rename(tmp_path / "two")
    (folder / "steps/two").symlink_to(tmp_path / "two")
    assert codes(folder) == ["escapes-task"]


def test_uploads_are_checked_again_when_they_are_made(write_task: Callable[..., Path]) -> None:
    folder = write_task()
    task = load_task(folder)
    (folder / "tests/out").symlink_to("/etc/passwd")
    with pytest.raises(TaskError, match="leads out"):
        task.upload_files("tests")


# -- fuzz ----------------------------------------------------------------------------------------------------

BYTES = st.binary(max_size=200)
TOMLISH = st.text(alphabet='abc=[]{}".,\'#\n -_:019\\eEnift"').map(str.encode)
PIECES = """[agent] [[steps]] [environment] name= "x" 1 nan [[verifier.collect]] env.A= timeout_sec= [ ] { }
    sandbox: --- - &a *a ? !! memory="2G" memory_mb=1 [metadata] a.b.c=1979-05-27 """
LINES = st.lists(st.sampled_from([*PIECES.split(), "  cpus: ", "'''", '"""']), max_size=12)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(["task.toml", "task.md", "instruction.md", "tests/.harborignore"]), st.data())
def test_any_bytes_give_a_task_or_a_diagnosis(name: str, data: st.DataObject) -> None:
    joined = LINES.map("\n".join).map(str.encode)
    content = data.draw(BYTES | TOMLISH | joined | joined.map(lambda text: b"---\n" + text + b"\n---\n" + text))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "tests").mkdir()
        (folder / "environment").mkdir()
        (folder / "instruction.md").write_text("Do it.")
        (folder / "tests/test.sh").touch()
        (folder / name).write_bytes(content)
        if not name.startswith("task"):
            (folder / "task.toml").touch()
        codes(folder)


@settings(deadline=None)
@given(st.text())
def test_any_path_gives_a_task_or_a_diagnosis(path: str) -> None:
    codes(path)
