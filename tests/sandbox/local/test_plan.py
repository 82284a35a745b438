from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import SandboxBuildError
from benchflow.sandbox.base import DEFAULT_PATH
from benchflow.sandbox.dockerignore import context_files
from benchflow.sandbox.local.dockerfile import parse
from benchflow.sandbox.local.instructions import ARCHITECTURE
from benchflow.sandbox.local.plan import (
    CopyStep,
    ImageConfig,
    Plan,
    RunStep,
    WorkdirStep,
    base_name,
    needs_builder,
    plan,
)

if TYPE_CHECKING:
    from pathlib import Path


def planned(text: str, context: Path | None = None, base: ImageConfig | None = None) -> Plan:
    files = context_files(context) if context else []
    return plan(parse(f"FROM base\n{text}"), base or ImageConfig(), files)


def the_run(text: str, base: ImageConfig | None = None) -> RunStep:
    step = planned(text, base=base).steps[-1]
    assert isinstance(step, RunStep)
    return step


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("FROM debian:bookworm", "debian:bookworm"),
        ("ARG V=12\nFROM debian:$V", "debian:12"),
        ("ARG A=1 B=2\nARG C=$A$B\nFROM x:$C", "x:12"),
        ("FROM x:${V:-9} AS y", "x:9"),
        ("FROM x-$TARGETARCH", "x-"),
        ("ARG TARGETARCH\nFROM x-$TARGETARCH", "x-"),
        ("ARG A=$TARGETARCH\nFROM x-$A", f"x-{ARCHITECTURE}"),
    ],
)
def test_the_base(head: str, name: str) -> None:
    assert base_name(parse(head)) == name


def test_a_base_that_comes_to_nothing_is_refused() -> None:
    with pytest.raises(SandboxBuildError, match=r"Dockerfile:1: .* is empty"):
        base_name(parse("FROM $NOTHING"))


def test_the_environment_of_the_base_is_kept_and_extended() -> None:
    base = ImageConfig(env={"A": "base", "PATH": "/x"}, workdir="/w", user="me")
    result = planned("ENV B=$A\nENV A=new B2=$A\nENV C=${B2}$A", base=base)
    assert result.config.env == {"A": "new", "PATH": "/x", "B": "base", "B2": "base", "C": "basenew"}
    assert (result.config.workdir, result.config.user) == ("/w", "me")
    assert planned("").config.env == {"PATH": DEFAULT_PATH}


def test_arguments_are_seen_from_their_line_on_and_yield_to_the_environment() -> None:
    assert "V" not in the_run("RUN x\nARG V=1\nRUN y").identity()
    assert "V" not in planned("RUN x\nARG V=1").steps[0].env  # type: ignore[union-attr]
    assert the_run("ARG V=1\nRUN x").env["V"] == "1"
    assert the_run("ARG V=1\nENV V=2\nRUN x").env["V"] == "2"
    assert the_run("ENV V=2\nARG V=1\nENV W=$V\nRUN x").env["W"] == "2"
    assert "V" not in the_run("ARG V\nRUN x").env
    assert planned("ARG V=1").config.env == {"PATH": DEFAULT_PATH}


def test_an_argument_before_from_is_taken_over_by_declaring_it() -> None:
    text = "ARG V=1\nFROM base\n{}RUN x"
    inherited = plan(parse(text.format("ARG V\n")), ImageConfig(), []).steps[0]
    unseen = plan(parse(text.format("")), ImageConfig(), []).steps[0]
    assert isinstance(inherited, RunStep)
    assert isinstance(unseen, RunStep)
    assert inherited.env["V"] == "1"
    assert "V" not in unseen.env


def test_platform_arguments_have_values_once_declared() -> None:
    assert the_run("ARG TARGETARCH\nRUN x").env["TARGETARCH"] == ARCHITECTURE


def test_commands() -> None:
    assert the_run("RUN echo $A").argv == ("/bin/sh", "-c", "echo $A")
    assert the_run('RUN ["echo", "$A"]').argv == ("echo", "$A")
    assert the_run('SHELL ["/bin/bash", "-eo", "pipefail", "-c"]\nRUN x').argv == (
        "/bin/bash",
        "-eo",
        "pipefail",
        "-c",
        "x",
    )
    step = the_run("USER me:us\nWORKDIR /a\nWORKDIR b/../c\nRUN x")
    assert (step.user, step.workdir) == ("me:us", "/a/c")


def test_only_what_changes_files_is_a_step() -> None:
    text = "ENV a=b\nUSER x\nCMD y\nLABEL a=b\nEXPOSE 80\nVOLUME /v\nSTOPSIGNAL 9\nHEALTHCHECK NONE\nWORKDIR /\nARG q\n"
    assert planned(text).steps == ()
    assert planned("WORKDIR /a").steps == (
        WorkdirStep(planned("WORKDIR /a").steps[0].instruction, "/a", ""),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("line", "target"),
    [
        ("COPY a /b", "/b"),
        ("COPY a /b/", "/b/"),
        ("COPY a b", "/w/b"),
        ("COPY a .", "/w/"),
        ("COPY a ./", "/w/"),
        ("COPY a ..", "/"),
        ("COPY a $D/x", "/d/x"),
        ("COPY a /b/../c/", "/c/"),
        ("COPY a c /b/", "/b/"),
        ("COPY . /app", "/app"),
        ("ADD a /b", "/b"),
    ],
)
def test_destinations(tmp_path: Path, line: str, target: str) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "c").write_text("c")
    step = planned(f"ENV D=/d\nWORKDIR /w\n{line}", tmp_path).steps[-1]
    assert isinstance(step, CopyStep)
    assert step.target == target


def test_owner_and_mode_of_a_copy(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    step = planned("ARG U=me\nCOPY --chown=$U:us --chmod=0750 a /b", tmp_path).steps[0]
    assert isinstance(step, CopyStep)
    assert (step.chown, step.mode) == ("me:us", 0o750)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("COPY missing /x", "Dockerfile:2: 'missing' is not in the build context"),
        ("COPY z* /x/", "matches nothing"),
        ("COPY a c /x", "must be a folder"),
        ("COPY --chmod=u+x a /x", "not an octal mode"),
        ("ENV a=${", "Dockerfile:2: "),
        ("WORKDIR 'x", "a single quote is not closed"),
        ('ENV a="${b:?set b}"', "b: set b"),
        ("COPY hidden /x", "ignore file hides it"),
    ],
)
def test_mistakes_are_found_before_anything_runs(tmp_path: Path, line: str, message: str) -> None:
    for name in ("a", "c", "hidden"):
        (tmp_path / name).write_text(name)
    (tmp_path / ".dockerignore").write_text("hidden")
    with pytest.raises(SandboxBuildError) as caught:
        planned(line, tmp_path)
    assert message in str(caught.value)
    assert caught.value.step == line


def test_the_identity_of_a_step_follows_all_it_depends_on(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    lines = [
        "RUN x",
        "RUN y",
        "ENV A=1\nRUN x",
        "ARG A=2\nRUN x",
        "USER me\nRUN x",
        'SHELL ["s"]\nRUN x',
        "WORKDIR /a",
        "USER me\nWORKDIR /a",
        "COPY a /b",
        "COPY a /c",
        "COPY --chown=1 a /b",
        "COPY --chmod=700 a /b",
    ]
    seen = {str(planned(line, tmp_path).steps[-1].identity()) for line in lines}
    assert len(seen) == len(lines)
    before = planned("COPY a /b", tmp_path).steps[0].identity()
    assert planned("# comment\nCOPY   a  /b\nLABEL x=y", tmp_path).steps[0].identity() == before
    (tmp_path / "a").write_text("b")
    assert planned("COPY a /b", tmp_path).steps[0].identity() != before


def test_adding_an_archive_needs_a_builder(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    with tarfile.open(tmp_path / "archive", "w") as tar:
        tar.add(tmp_path / "plain", "plain")
    files = context_files(tmp_path)
    assert needs_builder(parse("FROM b\nADD plain /x\nCOPY archive /y"), files) is None
    for line in ("ADD archive /x", "ADD arch* /x/"):
        found = needs_builder(parse(f"FROM b\n{line}"), files)
        assert found is not None
        assert found[1] == "it unpacks an archive"
    with pytest.raises(SandboxBuildError, match="ADD unpacks an archive"):
        planned("ARG A=archive\nADD $A /x", tmp_path)


def test_triggers_of_the_base_are_not_passed_on() -> None:
    assert planned("RUN x", base=ImageConfig(triggers=("RUN y",))).config.triggers == ()
