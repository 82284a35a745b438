"""Unknown keys warn with the nearest key, at any depth, and never keep a task from loading."""

from __future__ import annotations

import tomllib

import pytest

from benchflow.task.model import parse_config
from benchflow.task.problem import dotted


@pytest.mark.parametrize(
    ("toml", "path", "nearest"),
    [
        ("sourc = 1", "sourc", "source"),
        ("[enviroment]\ncpus = 1", "enviroment", "environment"),
        ("[sandbx]\ncpus = 1", "sandbx", "sandbox"),
        ("[agent]\ntimout_sec = 1", "agent.timout_sec", "timeout_sec"),
        ("[environment]\nmemory_gb = 1", "environment.memory_gb", "memory_mb"),
        ("[environment]\nallow_intranet = true", "environment.allow_intranet", "allow_internet"),
        ('[[steps]]\nname = "a"\n[steps.verifier.environment]\ncpu = 1', "steps[0].verifier.environment.cpu", "cpus"),
        ('[[verifier.collect]]\ncommand = "x"\ncomand = 1', "verifier.collect[0].comand", "command"),
        ('artifacts = ["/a", { source = "/b", sevice = "x" }]', "artifacts[1].sevice", "service"),
        ('[task]\nname = "a/b"\nauthors = [{ name = "x", mail = "y" }]', "task.authors[0].mail", "email"),
        ("zzz = 1", "zzz", None),
    ],
)
def test_unknown_keys_are_warnings(toml: str, path: str, nearest: str | None) -> None:
    config, issues = parse_config(tomllib.loads(toml))
    assert config is not None
    (issue,) = issues
    assert (issue.severity, issue.code, dotted(issue.path)) == ("warning", "unknown-key", path)
    assert (repr(nearest) in issue.what) if nearest else "nearest" not in issue.what


def test_free_tables_take_any_key() -> None:
    assert parse_config({"metadata": {"a": {"b": 1}}, "verifier": {"env": {"X": "y"}}})[1] == []


def test_numbers_as_text_work_and_warn() -> None:
    raw = tomllib.loads('[environment]\ncpus = "2"\n[[steps]]\nname = "1"\n[steps.agent]\ntimeout_sec = "5"')
    config, issues = parse_config(raw)
    assert config is not None
    assert [dotted(issue.path) for issue in issues] == ["environment.cpus", "steps[0].agent.timeout_sec"]
    assert {issue.code for issue in issues} == {"number-as-text"}
