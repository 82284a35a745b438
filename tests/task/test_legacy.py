"""Old and other spellings: converted, warned about, and refused only where they contradict the new ones."""

from __future__ import annotations

import tomllib

import pytest

from benchflow.task.legacy import megabytes
from benchflow.task.model import TaskConfig, parse_config
from benchflow.task.problem import dotted


def parse(toml: str) -> tuple[TaskConfig | None, list[tuple[str, str]]]:
    config, issues = parse_config(tomllib.loads(toml))
    return config, [(issue.severity, dotted(issue.path)) for issue in issues]


def test_version_is_schema_version() -> None:
    config, said = parse('version = "1.0"')
    assert config is not None
    assert config.schema_version == "1.0"
    assert said == [("warning", "version")]


@pytest.mark.parametrize(("new", "severity"), [("1.0", "warning"), ("1.4", "error")])
def test_version_beside_schema_version(new: str, severity: str) -> None:
    _, said = parse(f'version = "1.0"\nschema_version = "{new}"')
    assert said == [(severity, "version")]


@pytest.mark.parametrize(
    ("size", "expected"),
    [("2G", 2048), ("512M", 512), ("1.5G", 1536), ("2g", 2048), (" 2G ", 2048), ("1025K", 1), ("64K", 1)]
    + [(wrong, None) for wrong in ("2GB", "512", "", "G", "-1G", "nanG", "1e3G", 2048, None, "9" * 400 + "G", "٢G")],
)
def test_sizes(size: object, expected: int | None) -> None:
    assert megabytes(size) == expected


@pytest.mark.parametrize("table", ["environment", "verifier.environment", "sandbox"])
@pytest.mark.parametrize("key", ["memory", "storage"])
def test_sizes_become_megabytes(table: str, key: str) -> None:
    config, said = parse(f'[{table}]\n{key} = "2G"')
    assert config is not None
    box = config.verifier.environment if table.startswith("verifier") else config.environment
    assert getattr(box, f"{key}_mb") == 2048
    assert [severity for severity, _ in said] == ["warning"]


def test_sizes_of_a_step() -> None:
    config, _ = parse('[[steps]]\nname = "a"\n[steps.verifier.environment]\nmemory = "1G"')
    assert config is not None
    assert config.steps is not None
    assert config.steps[0].verifier.environment is not None
    assert config.steps[0].verifier.environment.memory_mb == 1024


def test_a_size_that_contradicts_the_new_key_is_an_error() -> None:
    assert parse('[environment]\nmemory = "2G"\nmemory_mb = 4096') == (None, [("error", "environment.memory")])
    config, said = parse('[environment]\nmemory = "2G"\nmemory_mb = 2048')
    assert config is not None
    assert said == [("warning", "environment.memory")]


def test_a_bad_size_is_an_error() -> None:
    assert parse('[environment]\nmemory = "2GB"') == (None, [("error", "environment.memory")])


@pytest.mark.parametrize(("allowed", "mode"), [("true", "public"), ("false", "no-network")])
def test_allow_internet(allowed: str, mode: str) -> None:
    config, said = parse(f"[environment]\nallow_internet = {allowed}")
    assert config is not None
    assert config.environment.network_mode == mode
    assert said == [("warning", "environment.allow_internet")]


def test_allow_internet_gives_way_to_network_mode() -> None:
    config, said = parse('[environment]\nallow_internet = false\nnetwork_mode = "public"')
    assert config is not None
    assert config.environment.network_mode == "public"
    assert said == [("warning", "environment.allow_internet")]


def test_allow_internet_beside_hosts_does_not_make_them_legal() -> None:
    config, said = parse('[environment]\nallow_internet = false\nallowed_hosts = ["a.com"]')
    assert config is None
    assert ("error", "environment.allowed_hosts") in said


def test_allow_internet_must_be_true_or_false() -> None:
    assert parse('[environment]\nallow_internet = "no"') == (None, [("error", "environment.allow_internet")])


def test_sandbox_and_oracle_are_other_names() -> None:
    config, said = parse('[sandbox]\ncpus = 2\n[oracle.env]\nA = "b"')
    assert config is not None
    assert config.environment.cpus == 2
    assert config.solution.env == {"A": "b"}
    assert said == []


def test_both_names_of_a_table_are_merged_unless_they_contradict() -> None:
    config, said = parse('[environment]\ncpus = 2\n[[sandbox.setup_commands]]\ncommand = "x"')
    assert config is not None
    assert said == []
    assert config.environment.cpus == 2
    assert len(config.environment.setup_commands) == 1
    assert parse("[environment]\ncpus = 2\n[sandbox]\ncpus = 3") == (None, [("error", "sandbox.cpus")])
    assert parse("sandbox = 1\n[environment]") == (None, [("error", "sandbox")])


def test_the_raw_document_is_not_changed() -> None:
    raw = tomllib.loads(
        'version = "1"\n[sandbox]\nmemory = "1G"\n[[steps]]\nname = "a"\n[steps.verifier.environment]\n'
    )
    before = repr(raw)
    parse_config(raw)
    assert repr(raw) == before
