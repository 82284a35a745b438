"""Which bundle a machine needs."""

from __future__ import annotations

import subprocess

import pytest

from benchflow.agent.platforms import PROBE, Platform, host_platform, parse_probe


@pytest.mark.parametrize(
    ("output", "platform"),
    [
        ("x86_64\nglibc\n", Platform("glibc", "x64")),
        ("aarch64\nmusl\n", Platform("musl", "arm64")),
        ("x86_64\n", Platform("glibc", "x64")),
    ],
)
def test_parse(output: str, platform: Platform) -> None:
    assert parse_probe(output) == platform


@pytest.mark.parametrize("output", ["", "riscv64\nglibc\n"])
def test_an_unknown_processor_is_named(output: str) -> None:
    with pytest.raises(ValueError, match="no agent bundles for the processor"):
        parse_probe(output)


def test_the_probe_agrees_with_this_machine() -> None:
    printed = subprocess.run(["sh", "-c", PROBE], capture_output=True, text=True, check=True).stdout
    assert parse_probe(printed) == host_platform()


def test_names() -> None:
    assert str(Platform("musl", "arm64")) == "musl-arm64"
    assert Platform("glibc", "x64").triple == "x86_64-unknown-linux-gnu"
