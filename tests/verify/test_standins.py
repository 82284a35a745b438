"""What stands where the verifier puts or looks for its own things is gone before it runs; what was asked for stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchflow.sandbox.base import Change
from benchflow.verify.hooks import judge, questions
from benchflow.verify.setting import Setting, environments_of, words_of
from benchflow.verify.standins import tool_sections

AGENT = 1000
TESTS = """#!/bin/bash
cp /tests/expected.txt /app/; cp -r /tests /app/tests; cd /app; make -f /tests/Makefile -s check
python3 -m venv /tmp/verify-env; uv run pytest; npx runner; sort answer.txt > /tmp/got.txt
pytest --cov=/app; grep x /tmp/server.log; apt-get install -y jq
"""
SETTING = Setting(
    workdir="/app",
    env={"PATH": "/app/.venv/bin:/usr/local/bin:/usr/bin"},
).told(
    {"test.sh": TESTS, **dict.fromkeys(["test_outputs.py", "check.py", "expected.txt", "Makefile", "sub/data"], "")},
    "Write the answer to /app/answer.txt.",
)


def added(path: str, kind: Any = "file", **more: Any) -> Change:
    return Change(path, more.pop("change", "added"), kind, uid=AGENT, **more)


@pytest.mark.parametrize(
    ("path", "kind", "removed"),
    [
        ("/app/test_outputs.py", "folder", True),
        ("/app/check.py", "folder", True),
        ("/app/Makefile", "folder", True),
        ("/app/data", "folder", False),
        ("/app/test_outputs.py", "file", False),
        ("/app/expected.txt", "other", True),
        ("/app/tests/test_outputs.py", "file", True),
        ("/app/sub/test_outputs.py", "file", False),
        ("/app/test_outputs", "folder", True),
        ("/app/conftest", "folder", True),
        ("/app/check", "folder", True),
        ("/app/checks", "folder", False),
        ("/app/test_outputs.cpython-311-x86_64-linux-gnu.so", "file", True),
        ("/app/GNUmakefile", "file", True),
        ("/app/.venv", "folder", True),
        ("/app/env", "folder", False),
        ("/app/--checkpoint-action=exec=sh e.sh", "file", True),
        ("/app/-", "file", False),
        ("/tmp/verify-env", "folder", True),
        ("/tmp/got.txt", "file", True),
        ("/tmp/sub/got.txt", "file", False),
        ("/tmp/answer.txt", "file", False),
        ("/tmp/mine", "file", False),
        ("/tmp/server.log", "file", False),
        ("/app/.npmrc", "file", True),
        ("/app/.coveragerc", "file", True),
        ("/app/.pylintrc", "file", False),
    ],
)
def test_what_has_a_name_that_the_tests_need(path: str, kind: str, removed: bool) -> None:
    assert (judge([added(path, kind)], SETTING).restore == [path]) is removed


def test_what_the_task_speaks_of_stays() -> None:
    asked = replace(
        SETTING, asked=words_of(["Make a virtualenv in .venv, write conf to .npmrc, and tests/test_outputs.py."])
    )
    for path, kind in (("/app/.venv", "folder"), ("/app/.npmrc", "file"), ("/app/tests/test_outputs.py", "file")):
        assert judge([added(path, kind)], asked).restore == []
    named = replace(SETTING, words=SETTING.words | {".venv"})
    assert judge([added("/app/.venv", "folder")], named).restore == []


def test_programs_of_node_hide_none_of_the_image() -> None:
    runner, other = added("/app/node_modules/.bin/runner"), added("/app/node_modules/.bin/other")
    assert "/usr/local/bin/runner" in questions([runner, other], SETTING)
    assert judge([runner, other], SETTING, ["/usr/local/bin/runner"]).restore == [runner.path]


def test_helpers_of_installers_are_not_the_agents() -> None:
    shipped = added("/app/.venv/pyvenv.cfg", change="touched")
    helper, named, own = (added(f"/app/.venv/bin/{name}") for name in ("rustc", "jq", "runner"))
    assert set(judge([shipped, helper, named, own], SETTING).restore) == {helper.path, named.path}
    installs_nothing = replace(SETTING, words=frozenset({"runner", "jq"}), installs=frozenset())
    assert judge([shipped, helper, named, own], installs_nothing).restore == []


def test_root_who_works_at_home() -> None:
    home = replace(SETTING, workdir="/root", env={})
    for path in ("/root/.bashrc", "/root/.gitconfig", "/root/.local/lib/python3.11/site-packages/x.py"):
        assert judge([added(path)], home).restore == [path]
    for path in ("/root/answer.txt", "/root/.local/share/x", "/root/.cache/x"):
        assert judge([added(path)], home).restore == []


def test_code_of_others_in_the_workspace() -> None:
    module = added("/app/node_modules/checker/index.js", change="modified")
    assert judge([module], SETTING).restore == [module.path]
    assert judge([module], replace(SETTING, asked=words_of(["Upgrade the dependencies"]))).restore == []
    python = added("/app/py/lib/python3.11/json/__init__.py", change="modified")
    assert judge([python], replace(SETTING, env={"PATH": "/app/py/bin:/usr/bin"})).restore == [python.path]
    assert judge([python], SETTING).restore == []


def test_parts_of_a_projects_configuration() -> None:
    assert tool_sections("pytest-ini", SETTING) == ["coverage:run"]
    assert tool_sections("pytest-toml", SETTING) == ["tool.coverage", "build-system", "tool.uv"]
    assert tool_sections("pytest-toml", replace(SETTING, asked=frozenset({"pyproject.toml", "--cov"}))) == []
    assert tool_sections("pth", SETTING) == []


def test_environments_and_targets_that_tests_make() -> None:
    assert environments_of(["python3 -m venv /tmp/a\nuv venv --python 3.12 .b; virtualenv 'c'"]) >= {"a", ".b", "c"}
    assert "check" in environments_of(["make -C /app -f /tests/Makefile check || true"])


@pytest.mark.parametrize(
    ("text", "speaks"), [("os.path.islink(x)", True), ("[ -L x ]", True), ("test ! -h y", True), ("curl -L x", False)]
)
def test_tests_that_look_at_links(text: str, speaks: bool) -> None:
    assert Setting("/app").told({"test.sh": text}, "").about_links is speaks
