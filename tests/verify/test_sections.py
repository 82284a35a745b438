"""The acting part of a configuration file is exchanged, and nothing else of it."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.verify.sections import (
    Unclear,
    editable_finders,
    harmless_git_config,
    named_paths,
    swap_ini_section,
    swap_tables,
    without_import_lines,
)

PROJECT = '[project]\nname = "x"  # mine\n\n[tool.ruff]\nline-length = 1\n'
PYTEST = '\n[tool.pytest.ini_options]\naddopts = "-p evil"\n'


def test_a_project_keeps_all_but_its_pytest_table() -> None:
    assert swap_tables(PROJECT, "", "tool.pytest") is None
    assert swap_tables(PROJECT + PYTEST, "", "tool.pytest") is not None
    kept = tomllib.loads(swap_tables(PROJECT + PYTEST, "", "tool.pytest") or "")
    assert kept == tomllib.loads(PROJECT)
    theirs = '[tool.pytest.ini_options]\nmarkers = ["slow"]\n'
    kept = tomllib.loads(swap_tables(PROJECT + PYTEST, theirs, "tool.pytest") or "")
    assert kept["tool"]["pytest"] == {"ini_options": {"markers": ["slow"]}}
    assert kept["project"] == {"name": "x"}


@pytest.mark.parametrize(
    "hidden",
    [
        'tool.pytest.ini_options.addopts = "x"\n',
        '[tool]\npytest = {ini_options = {addopts = "x"}}\n',
        '["tool"."pytest".\'ini_options\']\naddopts = "x"\n',
        '[tool.pytest]\n[tool.pytest.ini_options]\naddopts = "x"\n[project]\nname = "y"\n',
    ],
)
def test_however_the_table_is_written(hidden: str) -> None:
    swapped = swap_tables(hidden, "", "tool.pytest")
    assert swapped is not None
    assert "pytest" not in tomllib.loads(swapped).get("tool", {})


def test_line_breaks_that_only_pytest_knows_hide_nothing() -> None:
    with pytest.raises(Unclear):
        swap_tables("[tool.pytest.ini_options]\raddopts = '-p evil'\r", "", "tool.pytest")


def test_what_pytest_cannot_read_tells_it_nothing() -> None:
    assert swap_tables("not [ toml", "", "tool.pytest") is None


def test_an_ini_section_is_exchanged_wherever_it_stands() -> None:
    mine = "[metadata]\nname = x\n[tool:pytest]\naddopts = -p evil\n  more\n"
    mine += "[flake8]\nmax = 1\n[tool:pytest] ; again\nx=1\n"
    assert swap_ini_section(mine, "", "tool:pytest") == "[metadata]\nname = x\n[flake8]\nmax = 1\n"
    theirs = "[tool:pytest]\nmarkers = slow\n"
    assert (swap_ini_section(mine, theirs, "tool:pytest") or "").endswith("[tool:pytest]\nmarkers = slow\n")
    assert swap_ini_section("[metadata]\nname = y\n" + theirs, theirs, "tool:pytest") is None


@pytest.mark.parametrize("header", ["[pytest11]", "  [pytest11]", "[[pytest11]]", "[pytest11]more", "[ pytest11 ]"])
def test_a_header_is_one_for_the_most_lenient_reader(header: str) -> None:
    text = f"[console_scripts]\na = b:c\n{header}\nx = evil\n"
    assert swap_ini_section(text, "", "pytest11") == "[console_scripts]\na = b:c\n"


@settings(deadline=None)
@given(st.lists(st.sampled_from(["[pytest]", "[x]", " [pytest]", "a = 1", "", "#[pytest]", "[pytest]#", "[ pytest ]"])))
def test_an_ini_without_the_section_has_none(lines: list[str]) -> None:
    text = "\n".join(lines)
    swapped = swap_ini_section(text, "", "pytest")
    left = text if swapped is None else swapped
    assert swap_ini_section(left, "", "pytest") is None
    assert not any(line.startswith("[pytest]") for line in left.splitlines())


def test_a_pth_file_keeps_its_paths() -> None:
    assert without_import_lines("/app/src\n./x\n") is None
    assert without_import_lines("\ufeffimport evil\n/x\n") == "/x\n"
    assert without_import_lines("/app/src\nimport os; evil()\nimport\tx\nimports/path\n") == "/app/src\nimports/path\n"


HONEST = """[core]
\trepositoryformatversion = 0
\tbare = false
[remote "origin"]
\turl = https://example.org/x.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
\tremote = origin
[user]
\tname = An Agent
# done
"""


@pytest.mark.parametrize(
    "evil",
    [
        "[core]\n\tfsmonitor = /app/evil\n",
        "[core]\n\thooksPath = /app/hooks\n",
        '[filter "x"]\n\tclean = /app/evil\n',
        '[diff "x"]\n\ttextconv = /app/evil\n',
        "[include]\n\tpath = /app/evil\n",
        "[alias]\n\tlog = !evil\n",
        "[core] fsmonitor = /app/evil\n",
        "[user]\n\tname = x\\\n[core]\n\tpager = evil\n",
    ],
)
def test_a_repository_keeps_only_settings_that_run_nothing(evil: str) -> None:
    assert harmless_git_config(HONEST) is None
    kept = harmless_git_config(HONEST + evil)
    assert kept is not None
    assert "evil" not in kept
    assert "/app" not in kept
    assert kept.startswith(HONEST.removesuffix("# done\n"))


def test_tables_and_sections_of_several_tools() -> None:
    mine = '[project]\nname = "x"\n\n[build-system]\nrequires = []\nbackend-path = ["."]\n\n[tool.uv]\nindex = 1\n'
    swapped = tomllib.loads(
        swap_tables(mine, "[tool.uv]\npackage = false\n", "tool.pytest", "build-system", "tool.uv") or ""
    )
    assert swapped == {"project": {"name": "x"}, "tool": {"uv": {"package": False}}}
    ini = "[metadata]\nname = x\n[coverage:run]\nplugins = evil\n[mypy]\nplugins = evil\n"
    assert swap_ini_section(ini, "[mypy]\nstrict = 1\n", "coverage:run", "mypy") == (
        "[metadata]\nname = x\n\n[mypy]\nstrict = 1\n"
    )


@pytest.mark.parametrize("header", ["[pytest11]", "[]pytest11]", "[pytest11[]", " [[pytest11]]", "[ pytest11 ]"])
def test_every_header_that_a_reader_of_plugins_accepts(header: str) -> None:
    assert swap_ini_section(f"[x]\na = b\n{header}\nevil = evil\n", "", "pytest11") == "[x]\na = b\n"


def test_folders_of_a_pth_file_by_every_reader() -> None:
    assert named_paths("/a\x1c/b\n/c\r/d\n#no\n", "/s") >= {"/a\x1c/b", "/a", "/b", "/c", "/d"}


def test_an_editable_installation_is_found_without_running_code() -> None:
    line = "import __editable___my_tool_1_0_finder; __editable___my_tool_1_0_finder.install()\n"
    assert editable_finders(f"/src\n{line}import os\n") == ["__editable___my_tool_1_0_finder"]
    module = (
        "import sys\nMAPPING: dict[str, str] = {'mypkg': '/app/src/mypkg', 'odd': '/x\\ny/odd', 'else': '/a/other'}\n"
    )
    finders = {"__editable___my_tool_1_0_finder": module}
    assert without_import_lines(f"/src\n{line}import os\n", finders) == "/src\n/app/src\n"
    assert without_import_lines(line) == ""
