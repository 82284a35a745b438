"""Reading skills, and what is said when one cannot be read."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import ConfigError
from benchflow.skill.model import find_skills, load_skill, parse_front_matter
from benchflow.skill.nudge import nudge

if TYPE_CHECKING:
    from pathlib import Path


def write(root: Path, name: str, head: str = "", body: str = "Do it well.") -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\n{head or f'name: {name}'}\ndescription: How to do it.\n---\n{body}\n")
    return folder


def test_a_folder_of_skills_and_a_single_one(tmp_path: Path) -> None:
    write(tmp_path, "pdf-forms")
    write(tmp_path, "csv")
    (tmp_path / "notes").mkdir()
    assert [skill.name for skill in find_skills(tmp_path)] == ["csv", "pdf-forms"]
    assert [skill.name for skill in find_skills(tmp_path / "csv")] == ["csv"]


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("name: other", "they must be equal"),
        ("name: Bad_Name", "single hyphens"),
        ("name: [1]", "single hyphens"),
        ("name: a: b", "not valid YAML"),
    ],
)
def test_a_wrong_manifest_names_the_file(tmp_path: Path, head: str, words: str) -> None:
    folder = write(tmp_path, "good", head)
    with pytest.raises(ConfigError, match=words) as caught:
        load_skill(folder)
    assert str(folder / "SKILL.md") in caught.value.message


def test_no_skill_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no skill"):
        find_skills(tmp_path)
    with pytest.raises(ConfigError, match="is not a folder"):
        find_skills(tmp_path / "absent")


@given(st.text())
@settings(deadline=None)
def test_any_text_is_a_table_or_a_clear_error(text: str) -> None:
    for candidate in (text, f"---\n{text}\n---\n"):
        with suppress(ConfigError):
            assert isinstance(parse_front_matter(candidate, "SKILL.md"), dict)


def test_three_kinds_of_nudges(tmp_path: Path) -> None:
    skills = find_skills(write(tmp_path, "csv"))
    assert nudge(skills, "name", "/skills") == "Skills are available in /skills: csv."
    assert nudge(skills, "description", "/skills").endswith("- csv: How to do it.")
    assert nudge(skills, "full", "/skills").startswith('<skill name="csv">\n---')
    assert nudge(skills, "", "/skills") == ""
