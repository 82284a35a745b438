"""What a build says: whole lines to the log, the step that failed, the fix where it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.sandbox.base import BuildContext
from benchflow.sandbox.docker.build import BUILDKIT_HINT, BuildFailed, Progress, _hint, _items

if TYPE_CHECKING:
    from pathlib import Path


@settings(deadline=None)
@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=20), max_size=10),
    st.integers(1, 7),
)
def test_lines_are_whole_however_they_arrive(lines: list[str], size: int) -> None:
    said: list[str] = []
    progress = Progress(said.append)
    text = "".join(f"{line}\n" for line in lines)
    for start in range(0, len(text), size):
        progress.event({"stream": text[start : start + size]})
    progress.end()
    assert said == [line for line in lines if line]


@pytest.mark.parametrize("line", ["Step 2/3 : RUN false\n", "STEP 2/3: RUN false\n"])
def test_the_step_is_known_with_either_engine(line: str) -> None:
    progress = Progress(lambda _: None)
    progress.event({"stream": "Step 1/3 : FROM x\n"})
    progress.event({"stream": line + "some output\nunfinished"})
    with pytest.raises(BuildFailed, match="it broke"):
        progress.event({"errorDetail": {"message": "it broke"}, "error": "it broke"})
    assert progress.step == "2/3 RUN false"
    assert progress.output.endswith("some output\nunfinished")


def test_progress_bars_are_not_logged() -> None:
    said: list[str] = []
    progress = Progress(said.append)
    progress.event({"status": "Downloading", "id": "abc", "progressDetail": {"current": 1}})
    progress.event({"status": "Pull complete", "id": "abc", "progressDetail": {}})
    progress.event({"aux": {"ID": "sha256:1"}})
    assert said == ["abc Pull complete"]


@pytest.mark.parametrize(
    ("reason", "dockerfile"),
    [
        ("the --mount option requires BuildKit. Refer to the docs", "FROM x"),
        ("dockerfile parse error line 2: Unknown flag: link", "FROM x\nCOPY --link a b"),
        ("unknown instruction: ECHO", "FROM x\nRUN <<EOF\necho hi\nEOF"),
        ("unknown instruction: A", "FROM x\nCOPY <<'END' /x\na\nEND"),
        ("whatever", "FROM x\nRUN --mount=type=cache,target=/c true"),
    ],
)
def test_buildkit_syntax_is_recognised(reason: str, dockerfile: str) -> None:
    assert _hint(reason, dockerfile) == BUILDKIT_HINT


@pytest.mark.parametrize("dockerfile", ["FROM x\nRUN echo $((1 << 3))", "FROM x\nCOPY --chown=1 a b\nRUN cat < in"])
def test_plain_files_get_no_such_hint(dockerfile: str) -> None:
    assert _hint("exit code 1", dockerfile) is None


def context(folder: Path, ignore: str | None) -> dict[str, bytes | Path]:
    (folder / "Dockerfile").write_text("FROM x\n")
    (folder / "kept").write_text("1")
    (folder / "secret").write_text("2")
    if ignore is not None:
        (folder / ".dockerignore").write_text(ignore)
    items, text = _items(BuildContext(folder))
    assert text == "FROM x\n"
    return {item.name: item.content for item in items}


def test_ignored_files_are_not_sent(tmp_path: Path) -> None:
    assert set(context(tmp_path, "secret\n")) == {"Dockerfile", ".dockerignore", "kept"}


def test_an_ignored_dockerfile_is_sent_to_be_taken_away(tmp_path: Path) -> None:
    sent = context(tmp_path, "Dockerfile\n.dockerignore\nsecret\n")
    assert sent["Dockerfile"] == b"FROM x\n"
    assert sent[".dockerignore"] == b"Dockerfile\n.dockerignore\n"
    assert set(sent) == {"Dockerfile", ".dockerignore", "kept"}
