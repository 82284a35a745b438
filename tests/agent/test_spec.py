"""Templates and pins: pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from benchflow.agent.spec import VARIABLES, AgentSpec, HomeFile, Install, Launch, Setup, fill, placeholders, split_pin


def test_fill_replaces_known_names_and_leaves_json_alone() -> None:
    text = '{ "model": "{model}", "nested": { "a": 1 }, "${x}": "{}" }'
    assert fill(text, {"model": "m", "x": "y"}) == '{ "model": "m", "nested": { "a": 1 }, "$y": "{}" }'


@settings(deadline=None)
@given(st.text(alphabet=st.characters(exclude_characters="{}")))
def test_text_without_braces_is_never_changed(text: str) -> None:
    assert fill(text, {}) == text
    assert placeholders(text) == []


@settings(deadline=None)
@given(st.text())
def test_a_value_is_put_in_as_it_is(value: str) -> None:
    assert fill("<{model}>", {"model": value}) == f"<{value}>"


@pytest.mark.parametrize(
    ("package", "parts"),
    [
        ("acpx@0.19.1", ("acpx", "0.19.1")),
        ("@google/gemini-cli@0.61.0", ("@google/gemini-cli", "0.61.0")),
        ("hermes-agent[acp]==0.19.0", ("hermes-agent[acp]", "0.19.0")),
    ],
)
def test_pins(package: str, parts: tuple[str, str]) -> None:
    assert split_pin(package) == parts


@pytest.mark.parametrize("package", ["acpx", "@google/gemini-cli", "", "a@", "a b@1"])
def test_what_is_not_pinned_is_refused(package: str) -> None:
    with pytest.raises(ValueError, match="must be pinned"):
        split_pin(package)


def test_unknown_placeholders_are_refused_when_the_file_is_read() -> None:
    with pytest.raises(ValidationError, match=r"no such placeholder: \{modle\}"):
        Setup(env={"X": "{modle}"})
    every = {name: f"{{{name}}}" for name in VARIABLES}
    assert Setup(env=every).env == every


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../b", "~/x", ""])
def test_home_files_stay_in_the_home(path: str) -> None:
    with pytest.raises(ValidationError, match="must be relative to the home"):
        HomeFile(path=path, content="")


def test_an_agent_is_at_the_version_of_its_first_package() -> None:
    install = Install(npm=("@x/a@1.0.0", "@x/b@1.0.0"), node="24.19.0")
    spec = AgentSpec(name="a", install=install, launch=Launch(command=("a",)))
    assert spec.version == "1.0.0"
    assert spec.at_version("2.0.0-rc.1").install.npm == ("@x/a@2.0.0-rc.1", "@x/b@1.0.0")


def test_an_agent_must_say_how_it_is_started() -> None:
    with pytest.raises(ValidationError, match=r"launch\.command is missing"):
        AgentSpec(name="a")
    assert AgentSpec(name="a", kind="builtin").protocol == "built-in"


def test_scripts_are_those_of_npm_packages() -> None:
    with pytest.raises(ValidationError, match="`scripts` names packages from npm"):
        Install(pypi=("a==1",), python=">=3.12", scripts=("a",))
