"""The acting part of a configuration file is exchanged, and nothing else of it."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.verify.sections import (
    Unclear,
    harmless_git_config,
    swap_ini_section,
    swap_pytest_table,
    without_import_lines,
)

PROJECT = '[project]\nname = "x"  # mine\n\n[tool.ruff]\nline-length = 1\n'
PYTEST = '\n[tool.pytest.ini_options]\naddopts = "-p evil"\n'


def test_a_project_keeps_all_but_its_pytest_table() -> None:
    assert swap_pytest_table(PROJECT, "") is None
    assert swap_pytest_table(PROJECT + PYTEST, "") is not None
    kept = tomllib.loads(swap_pytest_table(PROJECT + PYTEST, "") or "")
    assert kept == tomllib.loads(PROJECT)
    theirs = '[tool.pytest.ini_options]\nmarkers = ["slow"]\n'
    kept = tomllib.loads(swap_pytest_table(PROJECT + PYTEST, theirs) or "")
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
    swapped = swap_pytest_table(hidden, "")
    assert swapped is not None
    assert "pytest" not in tomllib.loads(swapped).get("tool", {})


def test_line_breaks_that_only_pytest_knows_hide_nothing() -> None:
    with pytest.raises(Unclear):
        swap_pytest_table("[tool.pytest.ini_options]\raddopts = '-p evil'\r", "")


def test_what_pytest_cannot_read_tells_it_nothing() -> None:
    assert swap_pytest_table("not [ toml", "") is None


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
